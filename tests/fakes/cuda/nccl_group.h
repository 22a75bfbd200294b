// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <memory>

#include "tests/fakes/cuda/nccl_communicator.h"

namespace lockstep::fake {

/// The communicator behind a handle: null for null; dies for one that was destroyed or aborted, and
/// inside a host function.
std::shared_ptr<ncclComm> live(const char* function, ncclComm_t comm);
void discard(ncclComm_t comm);

/// Inside a group: ncclGroupEnd waits for the communicator instead of its maker. False outside.
bool defer_to_group_end(const std::shared_ptr<ncclComm>& comm, ncclComm_t* handle);

}  // namespace lockstep::fake
