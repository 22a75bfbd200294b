// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "lockstep/core/error.h"

namespace lockstep::cuda {

/// Throws DeviceError "<what>: <name of the error>: <its text>" unless `status` is success.
inline void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw DeviceError(what + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status),
                    status == cudaErrorMemoryAllocation
                        ? "use a smaller model or batch.micro"
                        : "see `nvidia-smi` and the kernel's log; CUDA_LAUNCH_BLOCKING=1 names the "
                          "call at fault");
}

}  // namespace lockstep::cuda
