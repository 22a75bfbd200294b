// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/parameter.h"

namespace lockstep {

/// Compares the parameters of all ranks of `group` by hash. Throws NumericError on every rank that
/// names the first parameter that differs and two ranks. The compute stream must be idle.
/// Collective.
void check_replicas(Communicator& group, const Parameters& parameters, std::int64_t step);

}  // namespace lockstep
