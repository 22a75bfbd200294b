// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/checkpoint.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/checkpoint/json.h"
#include "runtime/checkpoint/log_view.h"

namespace lockstep {

struct ManifestShard {
  std::string key;
  std::uint64_t size = 0;
  std::string etag = {};  // empty where the store has none
  std::uint64_t head_bytes = 0;
  std::string head_sha256;
  std::uint64_t writer = 0;
  std::uint64_t dp = 0;
  std::uint64_t tp = 0;
};

/// The table of contents of one commit.
struct Manifest {
  std::string job;
  std::uint64_t epoch = 0;
  std::uint64_t try_number = 0;
  std::string nonce;
  CheckpointMesh mesh;
  std::string plan_sha256;
  std::vector<TensorLine> tensors;    // byte order of the name
  std::vector<ManifestShard> shards;  // by writer
  TrainState state;                   // with step, tokens and code
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of all shards
};

Json to_json(const ManifestShard& shard);
ManifestShard manifest_shard_from(const Json& json);

std::string encode(const Manifest& manifest);
/// Throws DataError with what is wrong, ConfigError for a later major format.
Manifest decode_manifest(std::string_view text);

/// Reads the manifest of `commit` and checks it against the record. Throws DamageError.
Manifest read_manifest(ObjectStore& store, const LogView& view, const Commit& commit);
/// The same for bytes that have been read; `bytes` empty: the object is missing.
Manifest check_manifest(const std::optional<std::string>& bytes, const LogView& view,
                        const Commit& commit);

std::vector<ModelTensor> model_of(const Manifest& manifest);

/// How two models differ, a line a parameter: added, removed, another shape. Empty: not at all.
std::vector<std::string> differences(const std::vector<ModelTensor>& saved,
                                     const std::vector<ModelTensor>& now);

}  // namespace lockstep
