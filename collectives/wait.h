// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "collectives/abort_signal.h"
#include "collectives/task.h"

namespace lockstep {

/// The deadline of an operation has passed. A backend that knows who is late catches it and says
/// so.
struct TimeoutError : CommError {
  using CommError::CommError;
};

/// "1.5 s"
std::string seconds_text(std::chrono::nanoseconds time);

/// Tells the core that this thread spins.
#if defined(__x86_64__)
inline void pause_cpu() noexcept { __builtin_ia32_pause(); }
#else
inline void pause_cpu() noexcept {}
#endif

/// How a thread waits for something that it polls: pause, then yield, then short sleeps (design:
/// pause ≤ 20 µs, yield ≤ 1 ms, then sleep).
class Backoff {
 public:
  /// Pauses or yields; from some time on the answer is how long the thread should sleep instead.
  std::optional<std::chrono::microseconds> step();
  /// Pauses or yields; false, and nothing is done, after about the time that two changes of thread
  /// take.
  bool step_briefly();
  /// Something has arrived: begins with short pauses again.
  void reset() noexcept { spins_ = 0; }

 private:
  bool pause() noexcept;
  std::chrono::nanoseconds quiet();

  unsigned spins_ = 0;
  std::chrono::steady_clock::time_point quiet_;  // since when nothing has arrived
};

/// The waiting of one operation, with a deadline and a look at the abort signal.
///
/// In a task:     co_await wait.until([&] { return arrived(); });
/// Elsewhere:     while (!arrived()) wait.step();
///
/// Both throw CommError when the signal is raised, TimeoutError when the deadline has passed.
class Wait {
 public:
  /// `operation` is asked for only where a message needs it.
  Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
       std::function<std::string()> operation);
  Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
       std::string operation);
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  /// "rank 1: all_reduce #12 of group data"
  std::string operation() const { return operation_(); }

  /// One bounded wait of this thread.
  void step();
  /// Something arrived, but not yet what is awaited: the deadline stays.
  void progress() noexcept { moved_ = true; }

  template <typename Poll>
  class Until;
  /// `poll` is called again and again, on the thread that runs the task, until it is true. What it
  /// throws comes out of the co_await.
  template <typename Poll>
  Until<Poll> until(Poll poll) {
    return Until<Poll>(*this, std::move(poll));
  }

  /// `co_await wait.turn()` lets operations of other groups go on, in the middle of long work.
  auto turn() noexcept {
    struct Turn {
      Wait& wait;
      static bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<> at) noexcept {
        wait.suspend(
            at, [](void*) { return true; }, nullptr);
      }
      static void await_resume() noexcept {}
    };
    return Turn{*this};
  }

  // For who runs the task that waits here.

  /// Goes on with the task if what it awaits has come, or if it can come no more. Returns whether
  /// anything moved.
  bool resume();

 private:
  using PollOf = bool (*)(void* poll);
  static constexpr int kPolls = 50;  // before the task is put aside

  void check();
  void suspend(std::coroutine_handle<> at, PollOf poll_of, void* poll) noexcept;

  const AbortSignal& abort_;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point began_;
  std::function<std::string()> operation_;
  Backoff backoff_;
  bool moved_ = false;
  std::coroutine_handle<> at_;  // where the task waits, if it does
  PollOf poll_of_ = nullptr;
  void* poll_ = nullptr;
  std::exception_ptr failure_;  // of the wait, on its way into the task
};

/// The awaitable of Wait::until.
template <typename Poll>
class Wait::Until {
 public:
  Until(Wait& wait, Poll poll) : wait_(wait), poll_(std::move(poll)) {}

  bool await_ready() {
    for (int i = 0; i < kPolls; ++i) {
      if (poll_()) return true;
      pause_cpu();
    }
    return false;
  }
  void await_suspend(std::coroutine_handle<> at) {
    wait_.suspend(
        at, [](void* self) { return static_cast<Until*>(self)->poll_(); }, this);
  }
  void await_resume() {
    if (wait_.failure_) std::rethrow_exception(std::exchange(wait_.failure_, nullptr));
  }

 private:
  Wait& wait_;
  Poll poll_;
};

/// Runs a task to its end on this thread; throws what ended it. `wait` is the one it waits with.
void run_to_end(const Task& task, Wait& wait);

}  // namespace lockstep
