// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/cuda/check.h"
#include "lockstep/core/device.h"

namespace lockstep::cuda {

/// Makes `device` this thread's current one, on which CUDA allocates, records and launches; the
/// caller's choice (PyTorch's, say) is put back. Before anything else of CUDA on a thread: else a
/// context is opened on device 0 too.
class CurrentDevice {
 public:
  CurrentDevice(Device device, const std::string& what) : wanted_(device.index) {
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

}  // namespace lockstep::cuda
