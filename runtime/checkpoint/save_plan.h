// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard_plan.h"

namespace lockstep {

/// What is to be saved, the same on every rank.
struct SaveTable {
  std::vector<PlanTensor> tensors;  // an entry of the state each, in its order
  std::vector<TensorLine> lines;    // of the manifest
  std::uint64_t parameters = 0;     // elements of the params
};

/// `ranks`: data-parallel ones. Throws UsageError for a tensor that cannot be saved: not
/// replicated, in another number of pieces, of another type, optimizer state that does not belong
/// to a parameter.
SaveTable make_table(const StateDict& state, int ranks);

/// A hash over table and scalars: ranks that differ do not save the same thing.
std::string fingerprint(const SaveTable& table, const TrainState& scalars);

}  // namespace lockstep
