// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/core/device.h"

namespace lockstep {

/// Uninitialised memory of a device, aligned to 64 bytes at least; also of 0 bytes. Throws
/// DeviceError if there is none.
std::shared_ptr<void> device_memory(Device device, std::size_t bytes);
/// Zeros memory of device_memory(), before it returns.
void zero_memory(Device device, void* data, std::size_t bytes);

// In core/cuda/; a build without CUDA throws DeviceError.
namespace cuda {

std::shared_ptr<void> device_memory(Device device, std::size_t bytes);
/// Of the host, page-locked, at the same address for kernels.
std::shared_ptr<void> pinned_memory(Device device, std::size_t bytes);
void zero(Device device, void* data, std::size_t bytes);

}  // namespace cuda
}  // namespace lockstep
