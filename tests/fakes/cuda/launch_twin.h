// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/cuda/launch.h"

namespace lockstep::fake {

/// What lockstep::cuda::launch does here: queues a call of the twin, a void (*)(const Args&), with
/// a copy of the arguments.
cudaError_t launch_twin(const char* name, const void* function, const cuda::Grid& grid,
                        const void* args, std::size_t args_bytes, cudaStream_t stream);

}  // namespace lockstep::fake
