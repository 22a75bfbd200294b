// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a build without it: the same symbols, and what to do about it.
#include "core/cuda/device.h"

namespace lockstep::cuda {

int device_count() { return 0; }

std::string device_report() {
  return "cuda: not built in (configure with -DLOCKSTEP_CUDA=ON, or scripts/build cuda)";
}

}  // namespace lockstep::cuda
