// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/launch.h"

#include <string>

#include "core/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kSharedWithoutAsking = 48U * 1024U;

// A launch is refused unless the stream's device is the thread's current one; any thread may
// launch, and the caller's choice (PyTorch's, say) is put back.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device, const std::string& what) : wanted_(device) {
    check(cudaGetDevice(&before_), what);
    if (before_ != wanted_) check(cudaSetDevice(wanted_), what);
  }
  ~CurrentDevice() {
    if (before_ != wanted_) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  int wanted_;
};

}  // namespace

void launch(const char* name, const void* function, Grid grid, const void* args,
            std::size_t /*args_bytes*/, Stream& stream) {
  const std::string what = std::string("kernel ") + name;
  const CurrentDevice current(stream.device().index, what);
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
