// SPDX-License-Identifier: Apache-2.0
// The NCCL backend of a build without CUDA: the same symbols, and what to do about it.
#include "collectives/nccl/nccl_backend.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {

std::unique_ptr<Backend> make_nccl_backend(const std::vector<int>& job_ranks, int rank,
                                           Device device, Exchange& exchange, Wait& wait) {
  static_cast<void>(job_ranks);
  static_cast<void>(rank);
  static_cast<void>(exchange);
  static_cast<void>(wait);
  throw DeviceError(
      "several ranks with tensors on " + to_string(device) + ": this build has no NCCL",
      "use device = cpu, or build with -DLOCKSTEP_CUDA=ON (scripts/build cuda)");
}

std::string nccl_version() { return {}; }

}  // namespace lockstep
