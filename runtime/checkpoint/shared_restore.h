// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/manifest.h"

namespace lockstep {

/// Damage that a rank has met in a commit.
struct FoundDamage {
  int rank = 0;  // the lowest with any
  std::string what;
  bool is_missing = false;  // that rank does not see the object
};

/// Fills the tensors of `state`, which has passed check_table, on every rank; each byte of a shard
/// is read by one of them and sent to the others, in pieces of at most 8 MiB, of which a rank holds
/// two at a time. Collective. Damage is a result, the same on every rank, and some tensors may then
/// have been filled; all else is thrown on every rank, as by agree(). A rank that waits for
/// another's read has the group's deadline.
std::optional<FoundDamage> restore_shared(Communicator& world, ObjectStore& store,
                                          const Manifest& manifest, const StateDict& state);

}  // namespace lockstep
