// SPDX-License-Identifier: Apache-2.0
#include "core/copy.h"

#include <cuda_runtime_api.h>

#include <string>

#include "core/cuda/current_device.h"

namespace lockstep::cuda {

void queue_copy(Stream& stream, const void* from, void* to, std::size_t bytes) {
  const std::string what =
      "copy " + std::to_string(bytes) + " bytes by " + to_string(stream.device());
  const CurrentDevice current(stream.device(), what);
  // Which side is the host's the addresses say.
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                        static_cast<cudaStream_t>(stream.native())),
        what);
}

}  // namespace lockstep::cuda
