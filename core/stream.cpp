// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/stream.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace detail {

struct EventState {
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr error;                 // written before `done`, never after
  std::vector<std::function<void()>> then;  // until `done`

  void finish(std::exception_ptr failure) {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      if (done.load(std::memory_order_relaxed)) return;
      error = std::move(failure);
      done.store(true, std::memory_order_release);
      calls.swap(then);
    }
    changed.notify_all();
    for (const auto& call : calls) call();
  }
};

struct StreamState {
  explicit StreamState(Device where) : device(where) {}

  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(task));
    }
    changed.notify_one();
  }

  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stopping || !queue.empty(); });
        if (queue.empty()) return;
        task = std::move(queue.front());
        queue.pop_front();
      }
      task();
    }
  }

  // What runs on the worker: `body` unless the stream has failed.
  void guarded(const std::function<void()>& body) {
    if (failure) return;
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }

  Device device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stopping = false;
  std::exception_ptr failure;  // of the worker thread alone
  std::thread worker;
};

}  // namespace detail

Event Event::make() {
  Event event;
  event.state_ = std::make_shared<detail::EventState>();
  return event;
}

void Event::reach() const {
  if (state_) state_->finish(nullptr);
}

void Event::fail(std::exception_ptr error) const {
  if (state_) state_->finish(std::move(error));
}

bool Event::done() const noexcept {
  return !state_ || state_->done.load(std::memory_order_acquire);
}

void Event::wait() const {
  if (!state_) return;
  if (!state_->done.load(std::memory_order_acquire)) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->done.load(std::memory_order_relaxed); });
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Event::wait_for(std::chrono::nanoseconds timeout) const {
  if (!state_) return true;
  {
    std::unique_lock lock(state_->mutex);
    const bool done = state_->changed.wait_for(
        lock, timeout, [&] { return state_->done.load(std::memory_order_relaxed); });
    if (!done) return false;
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

void Event::on_done(std::function<void()> then) const {
  if (state_) {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done.load(std::memory_order_relaxed)) {
      state_->then.push_back(std::move(then));
      return;
    }
  }
  then();
}

Stream::Stream(Device device, const std::string& name) {
  if (device.kind != DeviceKind::cpu) {
    throw DeviceError("stream on " + to_string(device) + ": this build has no such backend",
                      "use device = cpu, or build with -DLOCKSTEP_CUDA=ON");
  }
  state_ = std::make_unique<detail::StreamState>(device);
  state_->worker = std::thread([state = state_.get()] { state->run(); });
  // The kernel keeps 15 characters.
  if (!name.empty()) pthread_setname_np(state_->worker.native_handle(), name.substr(0, 15).c_str());
}

Stream::Stream(Stream&&) noexcept = default;

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    Stream old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Stream::~Stream() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_one();
  state_->worker.join();
}

Device Stream::device() const noexcept { return state_->device; }

void* Stream::native() const noexcept { return nullptr; }

void Stream::enqueue(std::function<void()> task) {
  state_->push([state = state_.get(), task = std::move(task)] { state->guarded(task); });
}

Event Stream::record() {
  Event event = Event::make();
  // Runs also after a failure, to hand it on.
  state_->push([state = state_.get(), event] {
    if (state->failure) {
      event.fail(state->failure);
    } else {
      event.reach();
    }
  });
  return event;
}

void Stream::wait(const Event& event) {
  enqueue([event] { event.wait(); });
}

void Stream::synchronize() { record().wait(); }

}  // namespace lockstep
