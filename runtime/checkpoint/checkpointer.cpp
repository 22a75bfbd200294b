// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <functional>
#include <utility>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/job.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/messages.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/checkpoint/save_plan.h"
#include "runtime/checkpoint/shard.h"

namespace lockstep {
namespace {

/// How the read of one rank went.
struct ReadReport {
  std::string damage;  // empty: everything was read
  bool missing = false;
};

ReadReport try_restore(ObjectStore& store, const Manifest& manifest, const StateDict& state) {
  try {
    restore(store, manifest, state);
    return {};
  } catch (const DamageError& error) {
    return {.damage = error.what(), .missing = error.damage().what == "the shard is missing"};
  }
}

/// Objects of a save that failed; an error here leaves them to the sweep of the next launch.
void forget(ObjectStore& store, const std::vector<std::string>& keys) noexcept {
  for (const std::string& key : keys) {
    try {
      store.remove(key);
    } catch (const std::exception&) {
      continue;
    }
  }
}

}  // namespace

std::vector<ModelTensor> tensors_of(const Parameters& parameters) {
  std::vector<ModelTensor> tensors;
  tensors.reserve(parameters.size());
  for (const Parameter* parameter : parameters) {
    tensors.push_back({parameter->name(), parameter->shape()});
  }
  return tensors;
}

struct Checkpointer::State {
  ObjectStore& store;
  Communicator& world;
  CheckpointOptions options;
  std::optional<Job> job;  // after open(), on rank 0
  std::string job_id;
  std::uint64_t epoch = 0;
  // Saves of one step get a number each: the objects of a failed one may still be on their way.
  std::uint64_t last_step = 0;
  std::uint64_t tries = 0;

  bool is_root() const noexcept { return world.rank() == 0; }

  /// Runs `body` on rank 0; its text on every rank.
  std::string on_root(const char* what, const std::function<std::string()>& body) {
    std::string text;
    agree(world, what, [&] {
      if (is_root()) text = body();
    });
    return broadcast_text(world, text, 0);
  }

  SaveId next_save(std::uint64_t step) {
    tries = step == last_step ? tries : 0;
    last_step = step;
    return {.step = step, .epoch = epoch, .try_number = tries++};
  }

  std::vector<std::vector<Fragment>> place_shards(const SaveTable& table,
                                                  std::vector<std::uint64_t>* head_bytes);
  ManifestShard write_own_shard(const SaveId& id, const StateDict& state,
                                const std::vector<std::vector<Fragment>>& shards,
                                std::uint64_t head_bytes);
};

Checkpointer::Checkpointer(ObjectStore& store, Communicator& world, CheckpointOptions options)
    : state_(std::make_unique<State>(State{.store = store,
                                           .world = world,
                                           .options = options,
                                           .job = {},
                                           .job_id = {},
                                           .epoch = 0,
                                           .last_step = 0,
                                           .tries = 0})) {
  const CheckpointMesh& mesh = options.mesh;
  if (mesh.dp * mesh.tp != static_cast<std::uint64_t>(world.size()) || mesh.tp != 1) {
    throw UsageError("checkpoint: mesh " + std::to_string(mesh.dp) + " x " +
                         std::to_string(mesh.tp) + " over " + std::to_string(world.size()) +
                         " ranks",
                     "this build saves data-parallel replicas: dp = ranks, tp = 1");
  }
  if (options.keep == 0) throw UsageError("checkpoint: keep is 0", "keep at least one commit");
}

Checkpointer::~Checkpointer() = default;

OpenResult Checkpointer::open(const OpenOptions& options) {
  State& s = *state_;
  if (s.epoch != 0) throw UsageError("Checkpointer::open is called twice", "open it once");
  const std::string text = s.on_root("checkpoint open", [&] {
    s.job.emplace(s.store, s.options);
    return to_message(s.job->open(options));
  });
  OpenResult result = open_result_from(text);
  s.epoch = result.attempt;
  s.job_id = result.job;
  return result;
}

std::optional<LoadResult> Checkpointer::load(const StateDict& state) {
  State& s = *state_;
  if (s.epoch == 0) throw UsageError("Checkpointer::load before open", "call open() first");
  while (true) {
    const Choice choice =
        choice_from(s.on_root("checkpoint load", [&] { return to_message(s.job->choose()); }));
    if (!choice.commit) return std::nullopt;
    const Manifest manifest = decode_manifest(choice.manifest);
    ReadReport report;
    agree(s.world, "checkpoint load", [&] {
      check_table(manifest, state, TableMatch::exact);
      report = try_restore(s.store, manifest, state);
    });
    const std::vector<std::string> missing = gather_text(s.world, report.missing ? "1" : "");
    const std::vector<std::string> damages = gather_text(s.world, report.damage);
    std::size_t rank = 0;
    while (rank < damages.size() && damages[rank].empty()) ++rank;
    if (rank == damages.size()) {
      if (s.is_root()) s.job->loaded(choice.commit->seq);
      return LoadResult{
          .state = manifest.state, .commit = *choice.commit, .warnings = choice.warnings};
    }
    if (!missing[rank].empty() && missing[0].empty()) {
      throw ConfigError(
          "rank " + std::to_string(rank) + ": " + damages[rank] + ", but rank 0 has it",
          "the store is not shared by all hosts: set store to a shared folder");
    }
    s.on_root("checkpoint load", [&] {
      s.job->note_damaged(choice.commit->seq, damages[rank]);
      return std::string();
    });
  }
}

std::vector<std::vector<Fragment>> Checkpointer::State::place_shards(
    const SaveTable& table, std::vector<std::uint64_t>* head_bytes) {
  std::vector<std::vector<Fragment>> shards = plan_shards(table.tensors, options.mesh.dp);
  const auto rank = static_cast<std::size_t>(world.rank());
  std::uint64_t mine = 0;
  agree(world, "checkpoint plan", [&] { mine = head_size(shards[rank]); });
  for (const std::string& text : gather_text(world, std::to_string(mine))) {
    head_bytes->push_back(std::stoull(text));
  }
  for (std::size_t writer = 0; writer < shards.size(); ++writer) {
    place_fragments(shards[writer], (*head_bytes)[writer]);
  }
  return shards;
}

ManifestShard Checkpointer::State::write_own_shard(const SaveId& id, const StateDict& state,
                                                   const std::vector<std::vector<Fragment>>& shards,
                                                   std::uint64_t head_bytes) {
  const auto writer = static_cast<std::size_t>(world.rank());
  ShardHead head{.job = job_id,
                 .epoch = epoch,
                 .step = id.step,
                 .writer = writer,
                 .mesh = options.mesh,
                 .plan_sha256 = plan_sha256(options.mesh, shards),
                 .head_bytes = head_bytes,
                 .total_bytes = head_bytes,
                 .fragments = shards[writer]};
  std::vector<const std::byte*> data;
  for (const Fragment& fragment : head.fragments) {
    const Tensor& tensor = state.entries()[fragment.source].tensor;
    const std::uint64_t first = fragment.flat ? fragment.flat->start : 0;
    data.push_back(static_cast<const std::byte*>(tensor.data()) + first * size_of(tensor.dtype()));
    head.total_bytes = fragment.offset + fragment.bytes;
  }
  return write_shard(store, shard_key(id, writer), std::move(head), data);
}

SaveResult Checkpointer::save(const TrainState& scalars, const StateDict& state) {
  State& s = *state_;
  if (s.epoch == 0) throw UsageError("Checkpointer::save before open", "call open() first");
  SaveTable table;
  std::string what;
  agree(s.world, "checkpoint save", [&] {
    table = make_table(state);
    what = fingerprint(table, scalars);
  });
  const std::vector<std::string> whats = gather_text(s.world, what);
  for (std::size_t rank = 1; rank < whats.size(); ++rank) {
    if (whats[rank] == whats[0]) continue;
    throw UsageError("checkpoint save: rank " + std::to_string(rank) +
                         " saves another state than rank 0 (step, cursor or tensors differ)",
                     "call save with the same values on every rank");
  }
  const SaveId id = s.next_save(scalars.step);
  std::vector<std::uint64_t> head_bytes;
  const auto shards = s.place_shards(table, &head_bytes);

  const auto rank = static_cast<std::size_t>(s.world.rank());
  ManifestShard mine;
  try {
    agree(s.world, "checkpoint save",
          [&] { mine = s.write_own_shard(id, state, shards, head_bytes[rank]); });
  } catch (const std::exception&) {
    forget(s.store, {shard_key(id, rank)});
    throw;
  }
  const std::vector<std::string> written = gather_text(s.world, to_message(mine));
  const std::string text = s.on_root("checkpoint commit", [&] {
    Manifest manifest{.job = s.job_id,
                      .epoch = s.epoch,
                      .try_number = id.try_number,
                      .nonce = random_hex(16),
                      .mesh = s.options.mesh,
                      .plan_sha256 = plan_sha256(s.options.mesh, shards),
                      .tensors = table.lines,
                      .shards = {},
                      .state = scalars,
                      .parameters = table.parameters,
                      .bytes = 0};
    for (const std::string& shard : written) {
      manifest.shards.push_back(shard_from(shard));
      manifest.bytes += manifest.shards.back().size;
    }
    return to_message(s.job->commit(id, manifest));
  });
  return save_result_from(text);
}

}  // namespace lockstep
