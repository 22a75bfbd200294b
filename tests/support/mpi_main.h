// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/collectives/process_group.h"

namespace lockstep::testing_support {

/// The job that this test program is a rank of. Every test runs on all ranks at once and ends on
/// all with the same result: one that fails anywhere fails everywhere.
ProcessGroup& job();

/// Where the tensors of this rank's tests lie, by --device=cpu|cuda.
Device device();
/// GroupOptions::backend, by --backend=….
const std::string& backend();

/// Whether all ranks give the same text. Collective.
bool same_on_all_ranks(const std::string& text);

}  // namespace lockstep::testing_support
