// SPDX-License-Identifier: Apache-2.0
// In place of core/cuda/kernels.cpp where the build has no CUDA.
#include "core/kernel_table.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels {

const KernelTable& cuda_kernels() {
  throw DeviceError("kernels of CUDA are not in this build", "build with scripts/build cuda");
}

}  // namespace lockstep::kernels
