// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/device.h"
#include "core/kernels.h"
#include "lockstep/core/device.h"

/// What the tests of CUDA's kernels run on: a GPU, or what the fakes show of one. Where the kernels
/// are emulated, tests/fakes/cuda/emulated/ has another header of this name.
namespace lockstep::testing_support {

inline constexpr Device kGpu{DeviceKind::cuda, 0};
namespace gpu_kernels = kernels;

inline bool has_gpu() { return cuda::device_count() > 0; }

}  // namespace lockstep::testing_support
