// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/log_view.h"

namespace lockstep {

struct RetentionRule {
  std::uint64_t keep = 1;               // newest live commits that stay
  std::uint64_t keep_best = 0;          // those of the lowest eval_loss that stay as well
  std::optional<std::uint64_t> loaded;  // seq of the commit that this attempt started from
  std::uint64_t own_commits = 0;        // COMMITs of this attempt
};

/// Seqs of the commits to RETIRE, oldest first. At least one live commit always stays, and the one
/// that was loaded stays until this attempt has two of its own. A pure function.
std::vector<std::uint64_t> commits_to_retire(const LogView& view, const RetentionRule& rule);

/// Removes the shards, then the manifest.
void remove_objects(ObjectStore& store, const Commit& commit);

/// An object that nobody needs any more.
struct Leftover {
  std::string key;
  std::uint64_t size = 0;  // bytes
  std::string why;
  std::string upload = {};  // where it never became an object: what store.unfinished() calls it
};

/// Removes the object, or abandons what never became one.
void remove_leftover(ObjectStore& store, const Leftover& leftover);

/// What attempts before `epoch` left behind and what is RETIREd, shards before manifests, as
/// sweep() removes it. `epoch` has been claimed: an attempt before it can commit no more, and what
/// is of `epoch` or later may still be being written. Adds a line to `warnings` for what could not
/// be looked at.
std::vector<Leftover> leftovers(ObjectStore& store, const LogView& view, std::uint64_t epoch,
                                std::vector<std::string>& warnings);

/// After the CLAIM of `epoch`: removes what older attempts left behind, i.e. shards and manifests
/// without a COMMIT that is not retired, temporary objects, probe keys. Returns a line for what
/// could not be done. With records lost from the log shards and manifests stay: one of them may
/// have been their COMMIT.
std::vector<std::string> sweep(ObjectStore& store, const LogView& view, std::uint64_t epoch);

}  // namespace lockstep
