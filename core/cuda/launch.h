// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "lockstep/core/stream.h"

namespace lockstep::cuda {

/// A device kernel as the host knows it. All of a kernel's arguments are one struct, passed by
/// value. Each is defined once: beside its __global__ function in a .cu file, or, in the preset
/// cuda-fake, beside its twin on the host (tests/fakes/cuda/).
template <typename Args>
struct Kernel {
  const char* name;
  const void* function;  // the __global__ function; the twin, a void (*)(const Args&)
};

struct Grid {
  dim3 blocks{1, 1, 1};
  dim3 threads{1, 1, 1};
  unsigned shared_bytes = 0;  // dynamic
};

/// Every kernel of ours is launched here: by cudaLaunchKernel, or, in cuda-fake, by running the
/// twin in the stream's order. Throws DeviceError that names the kernel.
void launch(const char* name, const void* function, Grid grid, const void* args,
            std::size_t args_bytes, Stream& stream);

template <typename Args>
void launch(const Kernel<Args>& kernel, Grid grid, const Args& args, Stream& stream) {
  launch(kernel.name, kernel.function, grid, &args, sizeof args, stream);
}

}  // namespace lockstep::cuda
