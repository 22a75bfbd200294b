// SPDX-License-Identifier: Apache-2.0
#include "collectives/communication_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "core/stream_queue.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

struct Bench {
  std::shared_ptr<AbortSignal> abort = std::make_shared<AbortSignal>();
  CommunicationThread thread{"comm"};

  Event start(CommunicationThread::Queue& queue, Operation operation) {
    return thread.start(queue, std::move(operation)).done;
  }
  Operation operation(std::function<Task(Wait&)> make, Event ready = {}) const {
    return {.ready = std::move(ready),
            .text = [] { return std::string("trial"); },
            .timeout = std::chrono::seconds(10),
            .abort = abort,
            .make = std::move(make)};
  }
};

Task until(const std::atomic<bool>& flag, Wait& wait) {
  co_await wait.until([&] { return flag.load(); });
}

Task note(std::vector<int>& order, int number) {
  order.push_back(number);
  co_return;
}

Task fail() {
  throw CommError("it broke", "mend it");
  co_return;
}

TEST(CommunicationThread, AGroupThatWaitsHoldsNoOtherUp) {
  Bench bench;
  const auto first = bench.thread.add_queue(Lane::data);
  const auto second = bench.thread.add_queue(Lane::data);
  std::atomic<bool> flag{false};
  const Event late =
      bench.start(*first, bench.operation([&](Wait& wait) { return until(flag, wait); }));
  std::vector<int> order;
  const Event other = bench.start(*second, bench.operation([&](Wait&) { return note(order, 2); }));
  ASSERT_TRUE(other.wait_for(std::chrono::seconds(5)));
  EXPECT_FALSE(late.done());
  flag = true;
  EXPECT_TRUE(late.wait_for(std::chrono::seconds(5)));
}

TEST(CommunicationThread, KeepsTheOrderOfAGroupAlsoWhereALaterInputIsThereFirst) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  const Event ready = Event::make();
  std::vector<int> order;
  bench.start(*queue, bench.operation([&](Wait&) { return note(order, 1); }, ready));
  const Event last = bench.start(*queue, bench.operation([&](Wait&) { return note(order, 2); }));
  EXPECT_FALSE(last.wait_for(milliseconds(50)));
  ready.reach();
  ASSERT_TRUE(last.wait_for(std::chrono::seconds(5)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(CommunicationThread, LetsTheLaneThatOthersWaitForGoFirst) {
  Bench bench;
  const auto data = bench.thread.add_queue(Lane::data);
  const auto tensor = bench.thread.add_queue(Lane::tensor);
  std::atomic<bool> flag{false};
  // The thread is busy until both have something.
  std::atomic<bool> busy{false};
  bench.thread.call([&] {
    busy = true;
    while (!flag) std::this_thread::yield();
  });
  while (!busy) std::this_thread::yield();
  std::vector<int> order;
  const Event last = bench.start(*data, bench.operation([&](Wait&) { return note(order, 2); }));
  bench.start(*tensor, bench.operation([&](Wait&) { return note(order, 1); }));
  flag = true;
  ASSERT_TRUE(last.wait_for(std::chrono::seconds(5)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(CommunicationThread, CallsWhenAllBeforeItAreDone) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  std::atomic<bool> flag{false};
  bench.start(*queue, bench.operation([&](Wait& wait) { return until(flag, wait); }));
  const Event called = bench.thread.call([] {});
  EXPECT_FALSE(called.wait_for(milliseconds(50)));
  flag = true;
  EXPECT_TRUE(called.wait_for(std::chrono::seconds(5)));
}

TEST(CommunicationThread, OneFailureIsEverybodys) {
  Bench bench;
  const auto first = bench.thread.add_queue(Lane::data);
  const auto second = bench.thread.add_queue(Lane::data);
  const std::atomic<bool> never{false};
  const Event running =
      bench.start(*first, bench.operation([&](Wait& wait) { return until(never, wait); }));
  const Event waiting = bench.start(
      *first, bench.operation([&](Wait& wait) { return until(never, wait); }, Event::make()));
  const Event failed = bench.start(*second, bench.operation([](Wait&) { return fail(); }));
  EXPECT_THROW(failed.wait(), CommError);
  EXPECT_THROW(running.wait(), CommError);
  EXPECT_THROW(waiting.wait(), CommError);
  EXPECT_THROW(bench.thread.call([] {}).wait(), CommError);
  EXPECT_THROW(bench.start(*first, bench.operation([](Wait&) { return fail(); })).wait(),
               CommError);
}

TEST(CommunicationThread, EndsAnOperationAtItsDeadline) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  const std::atomic<bool> never{false};
  Operation late = bench.operation([&](Wait& wait) { return until(never, wait); });
  late.timeout = milliseconds(60);
  EXPECT_THROW(bench.start(*queue, std::move(late)).wait(), TimeoutError);
}

TEST(CommunicationThread, OutlivesNoEventThatComesTooLate) {
  const Event ready = Event::make();
  {
    Bench bench;
    const auto queue = bench.thread.add_queue(Lane::data);
    const Event done = bench.start(*queue, bench.operation([](Wait&) { return fail(); }, ready));
    bench.abort->raise({.kind = "exception", .origin_rank = 1, .what = "boom", .hint = {}});
    EXPECT_THROW(done.wait(), CommError);
  }
  ready.reach();
}

TEST(CommunicationThread, AThreadThatWaitsRunsTheOperationItself) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  std::atomic<bool> busy{false};
  std::atomic<bool> released{false};
  // The communication thread has something else to do.
  bench.thread.call([&] {
    busy = true;
    while (!released) std::this_thread::yield();
  });
  while (!busy) std::this_thread::yield();
  std::thread::id ran_on;
  std::vector<int> order;
  Operation operation = bench.operation([&](Wait&) {
    ran_on = std::this_thread::get_id();
    return note(order, 1);
  });
  operation.any_thread = true;
  const auto [done, number] = bench.thread.start(*queue, std::move(operation));
  bench.thread.help(*queue, number);
  EXPECT_TRUE(done.done());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  released = true;
}

TEST(CommunicationThread, AnOperationThatWaitsForLongMovesToTheThread) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  std::atomic<bool> flag{false};
  for (const bool is_short : {true, false}) {
    flag = false;
    Operation operation = bench.operation([&](Wait& wait) { return until(flag, wait); });
    operation.any_thread = true;
    operation.is_short = is_short;
    const auto [done, number] = bench.thread.start(*queue, std::move(operation));
    bench.thread.help(*queue, number);
    EXPECT_FALSE(done.done());
    flag = true;
    EXPECT_TRUE(done.wait_for(std::chrono::seconds(5)));
  }
}

// A device's work, which tells nobody: it is over once it has been asked for so often.
class Asked final : public detail::DevicePoint {
 public:
  bool reached() const override { return ++asked_ > 5; }
  void wait() const override {}
  void notify(std::function<void(std::exception_ptr)> then) const override {
    static_cast<void>(then);
  }

 private:
  mutable std::atomic<int> asked_{0};
};

TEST(CommunicationThread, MayBeTheOneThatFindsADevicesWorkDone) {
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  std::vector<int> order;
  const Event done =
      bench.start(*queue, bench.operation([&](Wait&) { return note(order, 1); },
                                          detail::event_at(std::make_shared<const Asked>())));
  EXPECT_TRUE(done.wait_for(std::chrono::seconds(5)));
}

TEST(CommunicationThread, SleepsWhileAPeerIsLate) {
  const auto cpu_seconds = [] {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  };
  Bench bench;
  const auto queue = bench.thread.add_queue(Lane::data);
  std::atomic<bool> flag{false};
  const Event late =
      bench.start(*queue, bench.operation([&](Wait& wait) { return until(flag, wait); }));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(500));
  const double used = cpu_seconds() - before;
  flag = true;
  late.wait();
  EXPECT_LT(used, 0.1) << "500 ms of waiting took " << used << " s of a core";
}

}  // namespace
}  // namespace lockstep
