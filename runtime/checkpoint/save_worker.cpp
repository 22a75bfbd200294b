// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save_worker.h"

#include <utility>

namespace lockstep {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

SaveWorker::SaveWorker() : thread_([this] { run(); }) {}

SaveWorker::~SaveWorker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    tasks_.clear();
  }
  work_.notify_all();
  thread_.join();
}

void SaveWorker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  work_.notify_one();
}

void SaveWorker::post_first(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_front(std::move(task));
  }
  work_.notify_one();
}

void SaveWorker::alive() {
  touch();
  if (ending_) throw SaveCancelled();
}

bool SaveWorker::idle() const {
  const std::lock_guard lock(mutex_);
  return !running_ && tasks_.empty();
}

bool SaveWorker::is_silent_for(std::chrono::nanoseconds limit) const {
  const std::lock_guard lock(mutex_);
  return running_ && now_ns() - last_sign_ns_ > limit.count();
}

void SaveWorker::wait_idle(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  rest_.wait_for(lock, limit, [this] { return !running_ && tasks_.empty(); });
}

void SaveWorker::touch() noexcept { last_sign_ns_ = now_ns(); }

void SaveWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (ending_) return;
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = true;
      touch();
      lock.unlock();
      task();
    }
    lock.lock();
    running_ = false;
    rest_.notify_all();
  }
}

}  // namespace lockstep
