// SPDX-License-Identifier: Apache-2.0
// Kernels in the preset cuda-fake: their twins on the host, in the stream's order. In the place of
// core/cuda/launch.cpp.
#include "core/cuda/launch.h"

#include <string>

#include "core/cuda/check.h"
#include "tests/fakes/cuda/launch_twin.h"

namespace lockstep::cuda {

void launch(const char* name, const void* function, Grid grid, const void* args,
            std::size_t args_bytes, Stream& stream) {
  check(fake::launch_twin(name, function, grid, args, args_bytes,
                          static_cast<cudaStream_t>(stream.native())),
        std::string("kernel ") + name);
}

}  // namespace lockstep::cuda
