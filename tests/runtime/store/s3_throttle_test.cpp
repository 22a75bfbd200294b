// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/throttle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep::s3 {
namespace {

constexpr std::chrono::seconds kPatience{60};

TEST(S3Throttle, WaitsForRoomNoLongerThanItMay) {
  Throttle throttle(1);
  const Throttle::Turn holder(throttle, kPatience);
  const auto began = std::chrono::steady_clock::now();
  const Throttle::Turn late(throttle, std::chrono::milliseconds(30));
  const auto waited = std::chrono::steady_clock::now() - began;
  EXPECT_GE(waited, std::chrono::milliseconds(30));
  EXPECT_LT(waited, std::chrono::seconds(20));
}

TEST(S3Throttle, HalvesOnceARoundAndGrowsBackByOneARound) {
  Throttle throttle(8);
  {
    Throttle::Turn a(throttle, kPatience);
    Throttle::Turn b(throttle, kPatience);
    a.was_throttled();
    b.was_throttled();
    EXPECT_EQ(throttle.allowed(), 4);
  }
  for (int i = 0; i < 4; ++i) Throttle::Turn(throttle, kPatience).went_well();
  EXPECT_NEAR(throttle.allowed(), 5, 0.1);
  for (int i = 0; i < 1000; ++i) Throttle::Turn(throttle, kPatience).went_well();
  EXPECT_EQ(throttle.allowed(), 8);
  for (int i = 0; i < 10; ++i) Throttle::Turn(throttle, kPatience).was_throttled();
  EXPECT_EQ(throttle.allowed(), 1) << "one request must always get through";
}

TEST(S3Throttle, LetsNoMoreThroughThanAreAllowed) {
  Throttle throttle(4);
  Throttle::Turn(throttle, kPatience).was_throttled();
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Throttle::Turn turn(throttle, kPatience);
      const int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      --running;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 2);
}

}  // namespace
}  // namespace lockstep::s3
