// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/launch.h"

#include <string>

#include "core/cuda/current_device.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kSharedWithoutAsking = 48U * 1024U;

}  // namespace

void launch(const char* name, const void* function, Grid grid, const void* args,
            std::size_t /*args_bytes*/, Stream& stream) {
  const std::string what = std::string("kernel ") + name;
  const CurrentDevice current(stream.device(), what);  // else the launch is refused
  if (grid.shared_bytes > kSharedWithoutAsking) {
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          what);
  }
  void* parameters[] = {const_cast<void*>(args)};  // the one struct; copied before the call returns
  check(cudaLaunchKernel(function, grid.blocks, grid.threads, parameters, grid.shared_bytes,
                         static_cast<cudaStream_t>(stream.native())),
        what);
}

}  // namespace lockstep::cuda
