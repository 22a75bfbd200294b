// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/stream.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/stream_queue.h"

namespace lockstep {
namespace detail {

struct EventState {
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr error;                  // written before `done`, never after
  std::vector<std::function<void()>> then;   // until `done`
  std::shared_ptr<const DevicePoint> point;  // of event_at(); never changed

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

  // Calls `ask` for what the device knows. Whether the event is done then.
  template <typename Ask>
  bool finish_by(const Ask& ask) {
    try {
      if (!ask()) return false;
      finish(nullptr);
    } catch (...) {
      finish(std::current_exception());
    }
    return true;
  }
};

Event event_at(std::shared_ptr<const DevicePoint> point) {
  Event event = Event::make();
  event.state_->point = std::move(point);
  return event;
}

std::shared_ptr<const DevicePoint> point_of(const Event& event) noexcept {
  return event.state_ ? event.state_->point : nullptr;
}

StreamQueue& queue_of(Stream& stream) noexcept { return *stream.queue_; }

}  // namespace detail

namespace {

// How often a bounded wait asks a device, which can wait only without a bound.
constexpr std::chrono::microseconds kAskDevice{100};

}  // namespace

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
  if (!state_ || state_->done.load(std::memory_order_acquire)) return true;
  return state_->point && state_->finish_by([this] { return state_->point->reached(); });
}

void Event::wait() const {
  if (!state_) return;
  if (!state_->done.load(std::memory_order_acquire)) {
    if (state_->point) {
      state_->finish_by([this] {
        state_->point->wait();
        return true;
      });
    } else {
      std::unique_lock lock(state_->mutex);
      state_->changed.wait(lock, [&] { return state_->done.load(std::memory_order_relaxed); });
    }
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Event::wait_for(std::chrono::nanoseconds timeout) const {
  if (!state_) return true;
  if (state_->point) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!done()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kAskDevice);
    }
  } else {
    std::unique_lock lock(state_->mutex);
    const bool done = state_->changed.wait_for(
        lock, timeout, [&] { return state_->done.load(std::memory_order_relaxed); });
    if (!done) return false;
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

void Event::on_done(std::function<void()> then) const {
  if (done()) return then();
  std::unique_lock lock(state_->mutex);
  if (state_->done.load(std::memory_order_relaxed)) {  // by now
    lock.unlock();
    return then();
  }
  const bool asks_device = state_->point && state_->then.empty();
  state_->then.push_back(std::move(then));
  lock.unlock();
  if (!asks_device) return;
  state_->point->notify(
      [state = state_](std::exception_ptr error) { state->finish(std::move(error)); });
}

Stream::Stream(Device device, const std::string& name)
    : device_(device),
      queue_(device.kind == DeviceKind::cpu ? detail::make_cpu_stream(name)
                                            : detail::make_cuda_stream(device, name)) {}

Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

Device Stream::device() const noexcept { return device_; }
void* Stream::native() const noexcept { return queue_->native(); }
void Stream::enqueue(std::function<void()> task) { queue_->enqueue(std::move(task)); }
Event Stream::record() { return queue_->record(); }
void Stream::wait(const Event& event) { queue_->wait(event); }
void Stream::synchronize() { record().wait(); }

}  // namespace lockstep
