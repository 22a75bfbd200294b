// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/core/device.h"

namespace lockstep {

class Event;
class Stream;
namespace detail {
struct EventState;
class DevicePoint;
class StreamQueue;
Event event_at(std::shared_ptr<const DevicePoint> point);
std::shared_ptr<const DevicePoint> point_of(const Event& event) noexcept;
StreamQueue& queue_of(Stream& stream) noexcept;
}  // namespace detail

/// A point in the work of a stream, or any other thing that becomes true once; a cheap handle.
///
/// A default-constructed event is already reached. All calls from any thread.
class Event {
 public:
  Event() = default;

  /// An event that some thread reaches or fails by hand, e.g. a communication thread.
  static Event make();
  void reach() const;
  void fail(std::exception_ptr error) const;

  bool done() const noexcept;
  /// Blocks this thread until the point is reached; rethrows a failure of the work before it.
  void wait() const;
  /// As wait(), but gives up after `timeout` and returns false.
  bool wait_for(std::chrono::nanoseconds timeout) const;
  /// Calls `then` once, when the event is reached or has failed: on the thread that ends it, or
  /// here and now if it has ended. `then` must be short and must not throw.
  void on_done(std::function<void()> then) const;

 private:
  friend Event detail::event_at(std::shared_ptr<const detail::DevicePoint> point);
  friend std::shared_ptr<const detail::DevicePoint> detail::point_of(const Event& event) noexcept;
  std::shared_ptr<detail::EventState> state_;
};

/// Work in order on one device. On the CPU it is a worker thread with a queue; with CUDA a stream,
/// whose tasks are host functions: they must not call CUDA.
///
/// After a task has thrown, the tasks behind it are dropped and every event behind it fails with
/// the same exception. Owner, move-only; enqueue, record and wait may be called by any thread.
class Stream {
 public:
  explicit Stream(Device device, const std::string& name = {});
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Waits for its own work. A failure that nobody has seen is dropped.
  ~Stream();

  Device device() const noexcept;
  /// The cudaStream_t; null on the CPU.
  void* native() const noexcept;
  void enqueue(std::function<void()> task);
  /// A point behind all work enqueued so far.
  Event record();
  /// Later work of this stream waits for `event`; the host does not. A failed event fails the
  /// stream.
  void wait(const Event& event);
  /// The host waits for all work so far; rethrows the first failure.
  void synchronize();

 private:
  friend detail::StreamQueue& detail::queue_of(Stream& stream) noexcept;
  Device device_;
  std::unique_ptr<detail::StreamQueue> queue_;
};

}  // namespace lockstep
