// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/abort_signal.h"
#include "collectives/backend.h"
#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// Backends of `ranks` ranks that are threads of this process, by rank.
std::vector<std::unique_ptr<Backend>> make_local_backends(int ranks);

/// Communicators of `ranks` ranks that are threads of this process, by rank, each with its own
/// communication thread. All share `abort`; a new signal if none is given.
std::vector<std::unique_ptr<Communicator>> make_local_group(
    int ranks, const CommunicatorOptions& options = {},
    std::shared_ptr<AbortSignal> abort = nullptr);

}  // namespace lockstep
