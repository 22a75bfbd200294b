// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/object_store.h"

namespace lockstep {

/// Where a run stands in its data: one global position, whatever the number of ranks.
struct DataCursor {
  std::string fingerprint;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // samples into the epoch's order
  bool operator==(const DataCursor&) const = default;
};

/// Where dynamic loss scaling stands.
struct ScalerState {
  double scale = 1.0;
  std::uint64_t good_steps = 0;  // in a row
  std::uint64_t skipped = 0;     // updates withheld
  bool operator==(const ScalerState&) const = default;
};

/// All of a run's state that is not a tensor; the same on every rank and for any number of ranks.
struct TrainState {
  std::uint64_t step = 0;
  std::uint64_t tokens = 0;  // cumulative valid tokens
  std::uint64_t seed = 0;    // of the counter-based generator
  DataCursor data;
  std::uint64_t schedule_total = 0;
  std::uint64_t schedule_position = 0;     // updates made so far: t
  std::uint64_t leaves = 0;                // V
  std::uint64_t micro = 0;                 // sequences a leaf
  std::optional<ScalerState> scaler = {};  // with f16
  /// The text of Hugging Face's config.json, kept byte for byte.
  std::string model = {};
  /// "bytes"; "tokens" where the data came as tokens; empty in checkpoints of before.
  std::string tokenizer = {};
  /// Of the weights at this step, where they were evaluated: what retention compares. It goes into
  /// the commit's record and comes back in CommitInfo, not here.
  std::optional<double> eval_loss = {};
  /// Choices that a resume may change, which is then said: "optim.lr", … Absent in checkpoints of
  /// before.
  std::map<std::string, std::string> options = {};
  /// What bits depend on: "cpu", "isa", "lockstep", library versions, …
  std::map<std::string, std::string> code = {};
  bool operator==(const TrainState&) const = default;
};

/// Name and shape of a parameter as a whole, without padding.
struct ModelTensor {
  std::string name;
  Shape shape;
};

/// Of parameters that are whole on every rank.
std::vector<ModelTensor> tensors_of(const Parameters& parameters);

struct CheckpointMesh {
  std::uint64_t dp = 1;
  std::uint64_t tp = 1;
  std::uint64_t zero = 0;
  bool operator==(const CheckpointMesh&) const = default;
};

/// What to do with commits that are there.
enum class ResumePolicy : std::uint8_t {
  automatic,  // load the newest, else start at 0
  never,      // refuse (78)
  must,       // load the newest, else refuse (74)
};

struct CheckpointOptions {
  CheckpointMesh mesh;          // dp · tp = ranks of the group
  std::uint64_t keep = 3;       // newest commits that retention leaves; at least 1
  std::uint64_t keep_best = 0;  // those of the lowest eval_loss that it leaves besides
  /// A background save in which a rank gets no answer from the store for so long has failed.
  std::chrono::nanoseconds silence_timeout = std::chrono::minutes(5);
  /// Bytes that this rank may still take for a copy without being killed for it; nothing: nobody
  /// knows. None: what the allocator gives. Asked once a slot.
  std::function<std::optional<std::uint64_t>()> memory_left = {};
};

struct OpenOptions {
  std::vector<ModelTensor> model = {};
  std::map<std::string, std::string> code = {};  // as TrainState::code; at most 2 KiB in all
  ResumePolicy resume = ResumePolicy::automatic;
};

/// The record that makes a checkpoint exist.
struct CommitInfo {
  std::uint64_t seq = 0;  // of its record in the log
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;  // of all shards
  std::uint64_t shards = 0;
  std::string time;  // UTC, ISO 8601
  std::optional<double> eval_loss = {};
};

struct OpenResult {
  std::uint64_t attempt = 0;          // the epoch of this launch's CLAIM, from 1
  std::string job;                    // uuid
  std::optional<CommitInfo> resume;   // what load() will try first
  std::vector<std::string> warnings;  // worth a line each: damaged records, a sweep that failed
};

struct LoadResult {
  TrainState state;
  CommitInfo commit;
  std::vector<std::string> warnings;  // commits found damaged, each with the first damage
};

struct SaveResult {
  CommitInfo commit;
  /// What did not fail the save: of retention, of copies that lack memory.
  std::vector<std::string> warnings;
};

/// Why a save did not become a commit.
struct SaveFailure {
  int rank = 0;  // where it went wrong; the lowest such rank
  Outcome outcome = Outcome::failed_elsewhere;
  std::string what;  // says operation and object
  std::string hint;
};

/// What became of a save that begin_save() started; the same on every rank.
struct SaveEnd {
  std::uint64_t step = 0;
  std::optional<SaveResult> saved;     // the commit is durable
  std::optional<SaveFailure> failure;  // else; the commit before it stands
};

/// Saves and loads the state of a job as sharded checkpoints in an object store.
///
/// Every call is collective over `world`, one thread a rank, the order open(), load(), save()….
/// It returns on every rank or throws on every rank: the rank with the fault throws what went
/// wrong, the others CommError with its text and outcome. Only rank 0 touches the log. The state is
/// that of data-parallel replicas: each tensor is written once, split evenly over the ranks, and
/// may be loaded on any number of ranks. Tensors lie on the host or on one device, whose streams
/// must be idle in save(), begin_save() and load().
///
/// FencedError (80) from save(): a newer launch has claimed the job; stop. DataError with outcome
/// no_checkpoint (74) from load(): commits are there, none is whole. StorageError: nothing has
/// changed, the last commit stands, and the call may be repeated.
///
/// Background saves: begin_save() copies this rank's part of the state into one of two host slots
/// and returns; a thread of this rank writes the copy and, on rank 0, commits. That thread only
/// talks to the store: all ranks share one communication thread that works in order, so an
/// operation that waited in it for a slow disk would hold up the gradients behind it. The ranks
/// learn of each other's progress in poll(), which all enter at the same step: one small all_gather
/// of what is done by now, and nobody waits for what is not. Saves become commits in the order in
/// which they began.
class Checkpointer {
 public:
  /// Both are borrowed. No communication. Throws UsageError for a mesh that is not the group's.
  Checkpointer(ObjectStore& store, Communicator& world, CheckpointOptions options);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Reads the log, refuses what must be refused before anything is written (another model, with
  /// the parameters that differ; the resume policy; a store without create-if-absent), then claims
  /// the job and sweeps what dead launches left behind. Once.
  OpenResult open(const OpenOptions& options);

  /// Fills the tensors of `state` from the newest live commit, every byte checked. A commit that is
  /// damaged is noted in the log, for all later readers, and the one before is taken. Nothing if
  /// the job has no commit yet. Throws ConfigError that lists the tensors if `state` and the commit
  /// do not hold the same ones.
  std::optional<LoadResult> load(const StateDict& state);

  /// Returns when the commit is durable. `scalars` and the table of `state` are the same on every
  /// rank. Afterwards old commits are retired: the newest `keep` and the best `keep_best` stay, and
  /// the one loaded by this launch until it has two of its own.
  SaveResult save(const TrainState& scalars, const StateDict& state);

  /// Like save(), but returns as soon as the state is copied and may change. False: both slots are
  /// busy on some rank, nothing was begun. Where there is memory for one copy alone, that is the
  /// only slot from then on. Throws as save() does for what is wrong before the first byte is
  /// written; StorageError if there is no memory for a copy, or no thread to write it.
  bool begin_save(const TrainState& scalars, const StateDict& state);

  /// The background saves that have ended since the last call. Collective: every rank at the same
  /// place between its other collectives. Without a save in flight nothing is communicated. A save
  /// that fails on one rank is given up by all, and what it wrote is removed.
  std::vector<SaveEnd> poll();

  /// As poll(), until no save is in flight. Takes at most about `silence_timeout` after the last
  /// sign of progress. Must be called before save().
  std::vector<SaveEnd> drain();

  /// After saves that failed, which may be because a newer launch has swept away what they wrote:
  /// throws FencedError if so. Collective. Nothing where the store does not answer in seconds.
  void check_unclaimed();

  /// Begun and not ended; the same on every rank. No communication.
  int saves_in_flight() const noexcept;

 private:
  friend class BackgroundSaves;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
