// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/copy.h"

#include <cstddef>

/// In core/cuda/; a build without CUDA throws DeviceError.
namespace lockstep::cuda {

void queue_copy(Stream& stream, const void* from, void* to, std::size_t bytes);

}  // namespace lockstep::cuda
