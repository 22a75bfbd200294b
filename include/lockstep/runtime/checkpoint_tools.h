// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/checkpoint.h"
#include "lockstep/runtime/object_store.h"

// Checkpoints as seen by somebody who takes no part in the job: nothing here claims, notes, writes
// or communicates; only collect_garbage() removes. Each call is independent; any thread.

namespace lockstep {

/// The store of a run folder (RUN/checkpoints, or RUN itself if the log is there) or of a store
/// URI. Throws ConfigError if the folder holds no checkpoints.
std::unique_ptr<ObjectStore> open_checkpoints(const std::string& run_or_uri);

enum class CommitStatus : std::uint8_t { live, retired, damaged };
const char* to_string(CommitStatus status) noexcept;

struct CommitLine {
  CommitInfo commit;
  CommitStatus status = CommitStatus::live;
};

/// Damage: of a log record, a manifest or a shard.
struct Damage {
  std::string object;                  // the key
  std::string dataset;                 // path in the shard; empty where it concerns no dataset
  std::optional<std::uint64_t> block;  // of 4 MiB, counted from the dataset's first byte
  std::string what;
};
/// One line for people.
std::string to_string(const Damage& damage);

struct CheckpointList {
  std::string job;
  std::uint64_t attempts = 0;       // highest epoch claimed
  std::vector<CommitLine> commits;  // oldest record first
  std::vector<Damage> log_damages;
};

/// Every commit of the log.
CheckpointList list_commits(ObjectStore& store);

/// A tensor of a checkpoint.
struct TensorLine {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::vector<StateKind> kinds;
};

struct ShardLine {
  std::string key;
  std::uint64_t size = 0;
};

/// What a manifest says.
struct CommitDetail {
  CommitInfo commit;
  CheckpointMesh mesh;
  TrainState state;
  std::vector<TensorLine> tensors;  // byte order of the name
  std::vector<ShardLine> shards;    // by writer
  std::uint64_t parameters = 0;
};

/// The newest live commit, or the newest live one of `step`. Throws DataError with outcome
/// no_checkpoint if there is none, DataError if its manifest is damaged.
CommitDetail show_commit(ObjectStore& store, std::optional<std::uint64_t> step = {});

struct VerifyReport {
  std::uint64_t records = 0;
  std::uint64_t commits = 0;  // live ones
  std::uint64_t shards = 0;
  std::uint64_t bytes = 0;
  std::vector<Damage> damages;  // empty: every byte is as it was written
};

/// Reads every byte of the log and of every live commit: records, manifests, shard heads, payload,
/// gaps. Damage is the result, not an exception; StorageError if the store cannot be read.
VerifyReport verify_checkpoints(ObjectStore& store);

enum class GarbageMode : std::uint8_t { list, remove };

struct GarbageObject {
  std::string key;
  std::uint64_t size = 0;  // bytes
  std::string why;
  bool removed = false;
};

struct GarbageReport {
  std::vector<GarbageObject> objects;
  std::uint64_t attempt = 0;               // the newest: what it has not committed stays
  std::uint64_t kept_objects = 0;          // such objects
  std::uint64_t kept_bytes = 0;            // of them
  std::vector<std::string> warnings = {};  // what could not be looked at or removed
  std::vector<Damage> log_damages = {};
};

/// Finds, and with GarbageMode::remove removes, what the next launch would sweep: objects of
/// RETIREd commits, and what attempts before the newest CLAIM left without a COMMIT. It is safe
/// beside a running job: nothing is taken that the newest attempt may be writing or loading.
GarbageReport collect_garbage(ObjectStore& store, GarbageMode mode);

/// What a commit must hold of the state that is loaded from it.
enum class LoadMatch : std::uint8_t {
  every,   // all tensors, in these shapes
  common,  // none: tensors that it does not hold in the same shape stay as they are
};

/// Fills the tensors of `state`, which may be some of the commit's (for a model without optimizer
/// state), and returns the rest of its state. With LoadMatch::common `warnings` lists what was not
/// loaded: tensors of `state` that the commit lacks or holds in another shape or type, and
/// parameters that `state` lacks. Throws as show_commit(), DataError for damage, and with
/// LoadMatch::every ConfigError for a tensor that the commit does not hold in this shape.
LoadResult load_commit(ObjectStore& store, const StateDict& state,
                       std::optional<std::uint64_t> step = {}, LoadMatch match = LoadMatch::every);

/// SHA-256, as 64 hex digits, over name, NUL and f32 bytes of every floating-point parameter in
/// byte order of the names: the master where there is one, else the parameter widened. Throws
/// UsageError for a master in pieces.
std::string weights_sha256(const StateDict& state);
/// The same where masters may be in pieces over `data`, one tensor after the other. Collective; on
/// rank 0, empty elsewhere.
std::string weights_sha256(const StateDict& state, Communicator& data);
/// The same of a commit.
std::string weights_sha256(ObjectStore& store, std::optional<std::uint64_t> step = {});

struct ExportResult {
  CommitInfo commit;
  std::filesystem::path weights;  // model.safetensors
  std::filesystem::path config;   // config.json
  std::uint64_t tensors = 0;
};

/// Writes the floating-point parameters in f32 (the master where there is one) and the model's
/// configuration, as Hugging Face's libraries read them. Makes the folder; files appear whole.
ExportResult export_commit(ObjectStore& store, const std::filesystem::path& folder,
                           std::optional<std::uint64_t> step = {});

}  // namespace lockstep
