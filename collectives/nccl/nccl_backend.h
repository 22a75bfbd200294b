// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "collectives/exchange.h"
#include "collectives/wait.h"

namespace lockstep {

/// A backend between GPUs, one a rank, over NCCL.
///
/// Collective over the ranks of `exchange`, which is not used after the call; `job_ranks` are their
/// numbers in the job, for messages, and this one is job_ranks[rank]. Throws the same ConfigError
/// on every rank if two of them have one GPU, or other versions of NCCL; DeviceError if a rank
/// cannot use its device, and in a build without CUDA; CommError if not all have connected when the
/// deadline of `wait` has passed.
std::unique_ptr<Backend> make_nccl_backend(const std::vector<int>& job_ranks, int rank,
                                           Device device, Exchange& exchange, Wait& wait);

}  // namespace lockstep
