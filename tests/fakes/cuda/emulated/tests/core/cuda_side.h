// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/kernels.h"
#include "lockstep/core/device.h"

/// In place of tests/core/cuda_side.h: the kernels of CUDA, run thread by thread on the CPU.
namespace lockstep::testing_support {

inline constexpr Device kGpu{};
namespace gpu_kernels = kernels::cuda;

inline bool has_gpu() { return true; }

}  // namespace lockstep::testing_support
