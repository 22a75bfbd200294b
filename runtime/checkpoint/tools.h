// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/manifest.h"

namespace lockstep {

struct FoundCommit {
  CommitInfo commit;
  Manifest manifest;
};

/// As show_commit.
FoundCommit find_commit(ObjectStore& store, std::optional<std::uint64_t> step);

}  // namespace lockstep
