// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace lockstep {

/// An operation that stops wherever it would have to wait, and goes on when it is resumed: a
/// coroutine, so that one thread carries many operations. Its waits are those of wait.h.
///
/// Nothing runs before start(). A task may co_await another one, which then runs as a part of it.
/// What it refers to must outlive it. Destroying one that is not done drops it where it stands.
class Task {
 public:
  struct promise_type;  // NOLINT(readability-identifier-naming): the standard's name
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  void start() const { handle_.resume(); }
  bool done() const noexcept { return handle_.done(); }
  /// Throws what ended a task that is done, if it was an exception.
  void rethrow() const;

  // The steps of `co_await task`.
  static bool await_ready() noexcept { return false; }
  std::coroutine_handle<> await_suspend(Handle caller) const noexcept;
  void await_resume() const { rethrow(); }

 private:
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_;
};

struct Task::promise_type {
  // Back to who awaits this task; to who resumed it if nobody does.
  struct Return {
    static bool await_ready() noexcept { return false; }
    static std::coroutine_handle<> await_suspend(Handle ended) noexcept {
      const std::coroutine_handle<> caller = ended.promise().caller;
      return caller ? caller : std::noop_coroutine();
    }
    static void await_resume() noexcept {}
  };

  Task get_return_object() { return Task(Handle::from_promise(*this)); }
  static std::suspend_always initial_suspend() noexcept { return {}; }
  static Return final_suspend() noexcept { return {}; }
  static void return_void() noexcept {}
  void unhandled_exception() noexcept { failure = std::current_exception(); }

  std::coroutine_handle<> caller;
  std::exception_ptr failure;
};

inline void Task::rethrow() const {
  if (handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
}

inline std::coroutine_handle<> Task::await_suspend(Handle caller) const noexcept {
  handle_.promise().caller = caller;
  return handle_;
}

}  // namespace lockstep
