// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/manifest.h"

namespace lockstep {

/// What rank 0 has chosen to load: nothing if the job has no commit yet.
struct Choice {
  std::optional<CommitInfo> commit;
  std::string manifest;
  std::vector<std::string> warnings;
};

// What ranks tell each other, as text.

std::string to_message(const OpenResult& result);
OpenResult open_result_from(std::string_view message);
std::string to_message(const Choice& choice);
Choice choice_from(std::string_view message);
std::string to_message(const ManifestShard& shard);
ManifestShard shard_from(std::string_view message);
std::string to_message(const SaveResult& result);
SaveResult save_result_from(std::string_view message);
/// Never empty. The text may be no UTF-8: it names paths.
std::string to_message(const SaveFailure& failure);
SaveFailure save_failure_from(std::string_view message);

}  // namespace lockstep
