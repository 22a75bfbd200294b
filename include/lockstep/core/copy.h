// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep {

/// A tensor of the host for copies from and to `device`: page-locked for CUDA, so that a copy goes
/// on while the host does. Zero-filled. Throws DeviceError if there is no memory.
Tensor host_tensor(Device device, Shape shape, DType dtype);

/// Queues to = from: the same bytes, of the host or of the stream's device. Both must outlive the
/// work. Nothing if they are the same memory. Throws UsageError for different sizes or devices.
void queue_copy(Stream& stream, const Tensor& from, const Tensor& to);

/// The same at once. What was queued on a device must be done.
void copy_now(const Tensor& from, const Tensor& to);

/// `tensor`, or a copy of it on the host; what was queued on its device must be done.
Tensor on_host(const Tensor& tensor);

}  // namespace lockstep
