// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "core/cuda/kernel_args.h"
#include "core/kernels.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

/// What the twins of kernels share: functions of the host that do a kernel's work by the kernels of
/// the CPU, since "device" memory is the host's there. A twin has a kernel's results, not its
/// steps.
namespace lockstep::fake {

template <typename Args>
cuda::Kernel<Args> twin(const char* name, void (*function)(const Args&)) {
  return {name, reinterpret_cast<const void*>(function)};
}

/// Runs what `queue` queues on a stream of the CPU.
inline void on_cpu(const std::function<void(Stream&)>& queue) {
  thread_local Stream stream{Device{}};
  queue(stream);
  stream.synchronize();
}

/// Memory of a kernel as a tensor of the CPU.
inline Tensor tensor_at(const void* data, Shape shape, DType type = DType::f32) {
  return Tensor::borrow(const_cast<void*>(data), std::move(shape), type, Device{});
}

inline DType type_of(kernels::Real type) {
  if (type == kernels::Real::bf16) return DType::bf16;
  return type == kernels::Real::f16 ? DType::f16 : DType::f32;
}

inline bool skipped(const std::int32_t* skip) { return skip != nullptr && *skip != 0; }

}  // namespace lockstep::fake
