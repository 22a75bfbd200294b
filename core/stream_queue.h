// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/core/stream.h"

namespace lockstep::cuda {
class AttentionChoice;
}

namespace lockstep::detail {

/// What a stream is on one kind of device. All calls from any thread.
class StreamQueue {
 public:
  virtual ~StreamQueue() = default;  // waits for its own work
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  virtual void* native() const noexcept = 0;
  virtual void enqueue(std::function<void()> task) = 0;
  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;
  /// Whose kernels carry out attention here; null where nobody has a choice.
  virtual cuda::AttentionChoice* attention() noexcept { return nullptr; }

 protected:
  StreamQueue() = default;
};

/// A point in the work of a device, which the host can ask for. All calls from any thread; those
/// that return nothing throw what ended the work.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  DevicePoint(const DevicePoint&) = delete;
  DevicePoint& operator=(const DevicePoint&) = delete;

  virtual bool reached() const = 0;
  virtual void wait() const = 0;
  /// Calls `then` when the point is reached, with what ended the work if something did; on a thread
  /// that must not call the device.
  virtual void notify(std::function<void(std::exception_ptr)> then) const = 0;

 protected:
  DevicePoint() = default;
};

/// An event that is reached when `point` is.
Event event_at(std::shared_ptr<const DevicePoint> point);
/// That of an event_at(); null for others.
std::shared_ptr<const DevicePoint> point_of(const Event& event) noexcept;

StreamQueue& queue_of(Stream& stream) noexcept;

/// A worker thread with a queue.
std::unique_ptr<StreamQueue> make_cpu_stream(const std::string& name);
/// In core/cuda/; a build without CUDA throws DeviceError.
std::unique_ptr<StreamQueue> make_cuda_stream(Device device, const std::string& name);

}  // namespace lockstep::detail
