// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(AbortSignal, KeepsTheFirstCause) {
  AbortSignal abort;
  EXPECT_FALSE(abort.raised());
  EXPECT_NO_THROW(abort.throw_if_raised());
  EXPECT_TRUE(abort.raise({.kind = "lost rank", .origin_rank = 2, .what = "gone", .hint = {}}));
  EXPECT_FALSE(abort.raise({.kind = "timeout", .origin_rank = 0, .what = "late", .hint = {}}));
  EXPECT_EQ(abort.cause()->origin_rank, 2);
  EXPECT_THROW(abort.throw_if_raised(), CommError);
}

TEST(Wait, EndsAtItsDeadlineAndNamesTheOperation) {
  const AbortSignal abort;
  const auto began = Clock::now();
  Wait wait(abort, began + milliseconds(50), "rank 1: all_reduce #12 of group data");
  try {
    for (;;) wait.step();
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1: all_reduce #12 of group data: gave up after"));
  }
  EXPECT_GE(Clock::now() - began, milliseconds(50));
  EXPECT_LT(Clock::now() - began, milliseconds(500));
}

TEST(Wait, KeepsItsDeadlineWhenSomethingArrives) {
  const AbortSignal abort;
  Wait wait(abort, Clock::now() + milliseconds(30), "trial");
  const auto wait_for_ever = [&] {
    for (;;) {
      wait.step();
      wait.progress();
      std::this_thread::sleep_for(milliseconds(1));
      for (int i = 0; i < 60; ++i) wait.step();
    }
  };
  EXPECT_THROW(wait_for_ever(), TimeoutError);
}

TEST(Wait, EndsWhenTheSignalIsRaisedElsewhere) {
  AbortSignal abort;
  Wait wait(abort, Clock::now() + std::chrono::seconds(20), "trial");
  const auto began = Clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(30));
    abort.raise({.kind = "exception", .origin_rank = 4, .what = "boom", .hint = {}});
  });
  try {
    for (;;) wait.step();
  } catch (const CommError& error) {
    EXPECT_EQ(error.origin_rank(), 4);
  }
  other.join();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(1));
}

TEST(Wait, SleepsThroughALongWait) {
  const AbortSignal abort;
  Wait wait(abort, Clock::now() + milliseconds(300), "trial");
  timespec before{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  const auto wait_for_ever = [&] {
    for (;;) wait.step();
  };
  EXPECT_THROW(wait_for_ever(), TimeoutError);
  timespec after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const double cpu = static_cast<double>(after.tv_sec - before.tv_sec) +
                     1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(cpu, 0.1) << "300 ms of waiting took " << cpu << " s of a core";
}

}  // namespace
}  // namespace lockstep
