// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

/// What SaveWorker::alive throws in a task that nobody waits for any more.
class SaveCancelled final : public std::exception {
 public:
  const char* what() const noexcept override { return "the save was cancelled"; }
};

/// A thread that does one task after the other and can be seen to hang. Never communicates with
/// other ranks.
class SaveWorker {
 public:
  SaveWorker();
  /// Ends the running task at its next sign of life, drops the others, joins.
  ~SaveWorker();
  SaveWorker(const SaveWorker&) = delete;
  SaveWorker& operator=(const SaveWorker&) = delete;

  /// Tasks must not throw. `post` queues behind all others, `post_first` before those that wait.
  void post(std::function<void()> task);
  void post_first(std::function<void()> task);

  /// A running task gives a sign of life. Throws SaveCancelled once the worker is to end.
  void alive();

  bool idle() const;
  /// Whether a task runs that has given no sign of life for `limit`.
  bool is_silent_for(std::chrono::nanoseconds limit) const;
  /// Returns when there is nothing to do, or after `limit`.
  void wait_idle(std::chrono::nanoseconds limit);

 private:
  void run();
  void touch() noexcept;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable rest_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false;
  std::atomic<bool> ending_{false};
  std::atomic<std::int64_t> last_sign_ns_{0};
  std::thread thread_;
};

}  // namespace lockstep
