// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/core/utc_time.h"
#include "lockstep/runtime/checkpoint.h"

namespace lockstep {

/// Version of log, manifest and shard heads: "major.minor".
inline constexpr const char* kFormat = "1.0";
inline constexpr std::uint64_t kFormatMajor = 1;
inline constexpr std::uint64_t kFormatMinor = 0;
inline constexpr std::size_t kRecordLimit = 4096;  // a record is shorter

/// Throws ConfigError if a later major version wrote `object`; DataError if `format` is no version.
void check_format(const std::string& format, const std::string& object);

struct JobRecord {
  std::string fingerprint;  // of the model
};
struct ClaimRecord {
  std::uint64_t world = 0;
  CheckpointMesh mesh;
  std::map<std::string, std::string> code;
};
struct ManifestReference {
  std::string key;
  std::uint64_t size = 0;
  std::string sha256;
};
struct CommitRecord {
  std::uint64_t step = 0;
  std::uint64_t tokens = 0;
  ManifestReference manifest;
  std::uint64_t bytes = 0;
  std::uint64_t shards = 0;
  std::optional<std::uint64_t> parent_seq;
  std::optional<double> eval_loss = {};  // finite
};
struct RetireRecord {
  std::vector<std::uint64_t> seqs;
  std::string reason;
};
struct NoteRecord {
  std::string what;  // "damaged" takes `commit` out for all later readers
  std::string text;
  std::optional<std::uint64_t> commit;  // seq
};
/// Of a later minor version: to be skipped.
struct UnknownRecord {};

using RecordBody =
    std::variant<UnknownRecord, JobRecord, ClaimRecord, CommitRecord, RetireRecord, NoteRecord>;

struct Record {
  std::uint64_t seq = 0;
  std::string job;  // uuid
  std::uint64_t epoch = 0;
  std::string nonce;
  std::string host;
  std::string time;
  RecordBody body;
};

/// One line of JSON that ends with its own CRC32C. Throws UsageError if it gets too long.
std::string encode(const Record& record);

/// Reads the record of `seq`. Throws DataError with what is wrong, ConfigError for a later major.
Record decode(std::string_view text, std::uint64_t seq);

/// SHA-256 over lines `name TAB dims joined by "," LF` in byte order of the name.
std::string model_fingerprint(std::vector<ModelTensor> model);

}  // namespace lockstep
