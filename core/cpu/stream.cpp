// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "core/stream_queue.h"

namespace lockstep::detail {
namespace {

class CpuStream final : public StreamQueue {
 public:
  explicit CpuStream(const std::string& name) : worker_([this] { run(); }) {
    // The kernel keeps 15 characters.
    if (!name.empty()) pthread_setname_np(worker_.native_handle(), name.substr(0, 15).c_str());
  }

  ~CpuStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    worker_.join();
  }

  void* native() const noexcept override { return nullptr; }

  void enqueue(std::function<void()> task) override {
    push([this, task = std::move(task)] { guarded(task); });
  }

  Event record() override {
    Event event = Event::make();
    // Runs also after a failure, to hand it on.
    push([this, event] {
      if (failure_) {
        event.fail(failure_);
      } else {
        event.reach();
      }
    });
    return event;
  }

  void wait(const Event& event) override {
    enqueue([event] { event.wait(); });
  }

 private:
  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        task = std::move(queue_.front());
        queue_.pop_front();
      }
      task();
    }
  }

  // What runs on the worker: `body` unless the stream has failed.
  void guarded(const std::function<void()>& body) {
    if (failure_) return;
    try {
      body();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::exception_ptr failure_;  // of the worker thread alone
  std::thread worker_;          // last: it uses what is above
};

}  // namespace

std::unique_ptr<StreamQueue> make_cpu_stream(const std::string& name) {
  return std::make_unique<CpuStream>(name);
}

}  // namespace lockstep::detail
