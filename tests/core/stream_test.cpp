// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(Stream, RunsTasksInTheOrderOfEnqueue) {
  std::vector<int> order;
  Stream stream(Device{});
  for (int i = 0; i < 100; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  stream.synchronize();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Stream, WaitsForAnEventOfAnotherStreamWithoutBlockingTheHost) {
  Stream first(Device{});
  Stream second(Device{});
  const Event gate = Event::make();
  std::atomic<bool> ran{false};
  first.wait(gate);
  second.wait(first.record());
  second.enqueue([&] { ran = true; });
  const Event end = second.record();
  EXPECT_FALSE(end.wait_for(milliseconds(20)));
  EXPECT_FALSE(ran);
  gate.reach();
  end.wait();
  EXPECT_TRUE(ran);
}

TEST(Stream, HandsAFailureToEveryEventBehindItAndDropsLaterTasks) {
  Stream stream(Device{});
  const Event before = stream.record();
  stream.enqueue([] { throw std::runtime_error("kernel failed"); });
  bool ran = false;
  stream.enqueue([&] { ran = true; });
  const Event behind = stream.record();
  EXPECT_NO_THROW(before.wait());
  EXPECT_THROW(behind.wait(), std::runtime_error);
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(Stream, FailsWhenTheEventItWaitsForFails) {
  Stream stream(Device{});
  const Event event = Event::make();
  stream.wait(event);
  event.fail(std::make_exception_ptr(CommError("peer lost", "")));
  EXPECT_THROW(stream.synchronize(), CommError);
}

TEST(Stream, FinishesItsWorkBeforeItIsDestroyed) {
  std::atomic<int> count{0};
  {
    Stream stream(Device{});
    for (int i = 0; i < 50; ++i) stream.enqueue([&] { ++count; });
  }
  EXPECT_EQ(count, 50);
}

TEST(Stream, RefusesADeviceWithoutABackend) {
  EXPECT_THROW(Stream(Device{.kind = DeviceKind::cuda}), DeviceError);
}

TEST(Event, IsReachedByDefaultAndOnlyOnce) {
  EXPECT_TRUE(Event().done());
  const Event event = Event::make();
  EXPECT_FALSE(event.done());
  event.reach();
  event.fail(std::make_exception_ptr(std::runtime_error("late")));
  EXPECT_NO_THROW(event.wait());
}

TEST(Event, WakesAllWaitersOnOtherThreads) {
  const Event event = Event::make();
  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      event.wait();
      ++woken;
    });
  }
  event.reach();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 4);
}

TEST(Device, ReadsAndWritesItsNames) {
  EXPECT_EQ(to_string(parse_device("cpu")), "cpu");
  EXPECT_EQ(to_string(parse_device("cuda")), "cuda:0");
  EXPECT_EQ(to_string(parse_device("cuda:3")), "cuda:3");
  for (const char* text : {"gpu", "cuda:", "cuda:x", "cuda:-1", ""}) {
    EXPECT_THROW(parse_device(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace lockstep
