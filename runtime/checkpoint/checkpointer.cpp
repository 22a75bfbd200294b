// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/checkpointer_state.h"
#include "runtime/checkpoint/job.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/lack.h"
#include "runtime/checkpoint/messages.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/checkpoint/save_plan.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/checkpoint/shared_restore.h"
#include "runtime/checkpoint/snapshot.h"

namespace lockstep {
namespace {

bool is_on_host(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const Tensor& tensor) { return tensor.device().kind == DeviceKind::cpu; });
}

}  // namespace

void forget(ObjectStore& store, const std::vector<std::string>& keys) noexcept {
  for (const std::string& key : keys) {
    try {
      store.remove(key);
    } catch (const std::exception&) {
      continue;
    }
  }
}

std::vector<ModelTensor> tensors_of(const Parameters& parameters) {
  std::vector<ModelTensor> tensors;
  tensors.reserve(parameters.size());
  for (const Parameter* parameter : parameters) {
    tensors.push_back({parameter->name(), parameter->shape()});
  }
  return tensors;
}

Checkpointer::Checkpointer(ObjectStore& store, Communicator& world, CheckpointOptions options)
    : state_(std::make_unique<State>(
          State{.store = store, .world = world, .options = std::move(options)})) {
  const CheckpointMesh& mesh = state_->options.mesh;
  if (mesh.dp * mesh.tp != static_cast<std::uint64_t>(world.size()) || mesh.tp != 1) {
    throw UsageError("checkpoint: mesh " + std::to_string(mesh.dp) + " x " +
                         std::to_string(mesh.tp) + " over " + std::to_string(world.size()) +
                         " ranks",
                     "this build saves data-parallel replicas: dp = ranks, tp = 1");
  }
  if (state_->options.keep == 0) {
    throw UsageError("checkpoint: keep is 0", "keep at least one commit");
  }
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
    agree(s.world, "checkpoint load", [&] { check_table(manifest, state, TableMatch::exact); });
    const auto damage = restore_shared(s.world, s.store, manifest, state);
    if (!damage) {
      if (s.is_root()) s.job->loaded(choice.commit->seq);
      return LoadResult{
          .state = manifest.state, .commit = *choice.commit, .warnings = choice.warnings};
    }
    // Rank 0 looks again: what it has read may have been removed since.
    const auto root_sees_all = [&] {
      const auto look = [&] { return std::string(s.job->sees(manifest) ? "all" : ""); };
      return !s.on_root("checkpoint load", look).empty();
    };
    if (damage->is_missing && damage->rank != 0 && root_sees_all()) {
      throw ConfigError(
          "rank " + std::to_string(damage->rank) + ": " + damage->what + ", but rank 0 has it",
          "the store is not shared by all hosts: set store to a shared folder");
    }
    s.on_root("checkpoint load", [&] {
      s.job->note_damaged(choice.commit->seq, damage->what);
      return std::string();
    });
  }
}

std::shared_ptr<const PlacedShards> Checkpointer::State::place_shards(const SaveTable& table) {
  if (placed && placed->tensors == table.tensors) return placed;
  auto fresh = std::make_shared<PlacedShards>();
  fresh->tensors = table.tensors;
  fresh->fragments = plan_shards(table.tensors, options.mesh.dp);
  const auto rank = static_cast<std::size_t>(world.rank());
  std::uint64_t mine = 0;
  agree(world, "checkpoint plan", [&] { mine = head_size(fresh->fragments[rank]); });
  for (const std::string& text : gather_text(world, std::to_string(mine))) {
    fresh->head_bytes.push_back(std::stoull(text));
  }
  for (std::size_t writer = 0; writer < fresh->fragments.size(); ++writer) {
    place_fragments(fresh->fragments[writer], fresh->head_bytes[writer]);
  }
  fresh->plan_sha256 = plan_sha256(options.mesh, fresh->fragments);
  placed = std::move(fresh);
  return placed;
}

AgreedSave Checkpointer::State::agree_on_save(const TrainState& scalars, const StateDict& state) {
  AgreedSave save{.id = {}, .scalars = scalars, .table = {}, .shards = {}};
  std::string what;
  agree(world, "checkpoint save", [&] {
    save.table = make_table(state, static_cast<int>(options.mesh.dp));
    what = fingerprint(save.table, scalars);
  });
  const std::vector<std::string> whats = gather_text(world, what);
  for (std::size_t rank = 1; rank < whats.size(); ++rank) {
    if (whats[rank] == whats[0]) continue;
    throw UsageError("checkpoint save: rank " + std::to_string(rank) +
                         " saves another state than rank 0 (step, cursor or tensors differ)",
                     "call save with the same values on every rank");
  }
  tries = scalars.step == last_step ? tries : 0;
  last_step = scalars.step;
  save.id = {.step = scalars.step, .epoch = epoch, .try_number = tries++};
  save.shards = place_shards(save.table);
  return save;
}

ShardHead Checkpointer::State::own_head(const AgreedSave& save) const {
  const auto writer = static_cast<std::size_t>(world.rank());
  ShardHead head{.job = job_id,
                 .epoch = epoch,
                 .step = save.id.step,
                 .writer = writer,
                 .mesh = options.mesh,
                 .plan_sha256 = save.shards->plan_sha256,
                 .head_bytes = save.shards->head_bytes[writer],
                 .total_bytes = save.shards->head_bytes[writer],
                 .fragments = save.shards->fragments[writer]};
  for (const Fragment& fragment : head.fragments) {
    head.total_bytes = fragment.offset + fragment.bytes;
  }
  return head;
}

Manifest Checkpointer::State::manifest_of(const AgreedSave& save,
                                          const std::vector<std::string>& written) const {
  Manifest manifest{.job = job_id,
                    .epoch = epoch,
                    .try_number = save.id.try_number,
                    .nonce = random_hex(16),
                    .mesh = options.mesh,
                    .plan_sha256 = save.shards->plan_sha256,
                    .tensors = save.table.lines,
                    .shards = {},
                    .state = save.scalars,
                    .parameters = save.table.parameters,
                    .bytes = 0};
  for (const std::string& shard : written) {
    manifest.shards.push_back(shard_from(shard));
    manifest.bytes += manifest.shards.back().size;
  }
  return manifest;
}

SaveResult Checkpointer::save(const TrainState& scalars, const StateDict& state) {
  State& s = *state_;
  if (s.epoch == 0) throw UsageError("Checkpointer::save before open", "call open() first");
  if (saves_in_flight() > 0) {
    throw UsageError("Checkpointer::save while a background save is in flight",
                     "call drain() first");
  }
  agree(s.world, "checkpoint save", [&] {
    if (s.background && !s.background->idle()) {
      throw StorageError("an earlier save still hangs in store " + s.store.uri(),
                         "check the store; the last commit stands");
    }
    if (s.is_root()) s.job->check_unclaimed();
  });
  const AgreedSave save = s.agree_on_save(scalars, state);
  const std::string key = shard_key(save.id, static_cast<std::uint64_t>(s.world.rank()));
  ManifestShard mine;
  Snapshot copy;  // where the state is not on the host
  try {
    agree(s.world, "checkpoint save", [&] {
      const ShardHead head = s.own_head(save);
      const std::vector<Tensor> pieces = pieces_of(head, state);
      if (is_on_host(pieces)) {
        mine = write_shard(s.store, key, head, addresses_of(pieces));
      } else {
        copy.take(pieces, s.options.memory_left);
        mine = write_shard(s.store, key, head, copy.data());
      }
    });
  } catch (const std::exception&) {
    forget(s.store, {key});
    throw;
  }
  const std::vector<std::string> written = gather_text(s.world, to_message(mine));
  SaveResult saved = save_result_from(s.on_root(
      "checkpoint commit", [&] { return s.commit(save.id, s.manifest_of(save, written)); }));
  std::vector<std::string> remarks = s.remarks_on(copy);
  std::move(remarks.begin(), remarks.end(), std::back_inserter(saved.warnings));
  return saved;
}

std::string Checkpointer::State::commit(const SaveId& id, const Manifest& manifest) {
  return write_with_resources("manifest " + manifest_key(id) + " and COMMIT",
                              [&] { return to_message(job->commit(id, manifest)); });
}

void Checkpointer::State::start_background() {
  if (background) return;
  try {
    agree(world, "checkpoint saves", [&] {
      try {
        background = std::make_unique<BackgroundSaves>(*this);
      } catch (const std::system_error& error) {
        throw StorageError(
            std::string("checkpoint: no thread to write saves with: ") + error.what(),
            "raise the limit of threads (ulimit -u, pids.max of the control "
            "group), or set checkpoint.async = false");
      }
    });
  } catch (const std::exception&) {
    background.reset();
    throw;
  }
}

std::vector<std::string> Checkpointer::State::remarks_on(const Snapshot& copy) {
  if (told_slow_copies) return {};
  std::vector<std::string> remarks;
  const std::vector<std::string> whys = gather_text(world, copy.not_page_locked());
  for (std::size_t rank = 0; rank < whys.size(); ++rank) {
    if (whys[rank].empty()) continue;
    remarks.push_back(
        "rank " + std::to_string(rank) +
        " copies its state from the GPU into ordinary memory, which takes longer: " + whys[rank]);
  }
  told_slow_copies = !remarks.empty();
  return remarks;
}

bool Checkpointer::begin_save(const TrainState& scalars, const StateDict& state) {
  State& s = *state_;
  if (s.epoch == 0) throw UsageError("Checkpointer::begin_save before open", "call open() first");
  s.start_background();
  return s.background->begin(scalars, state);
}

std::vector<SaveEnd> Checkpointer::poll() {
  return state_->background ? state_->background->poll() : std::vector<SaveEnd>();
}

std::vector<SaveEnd> Checkpointer::drain() {
  return state_->background ? state_->background->drain() : std::vector<SaveEnd>();
}

void Checkpointer::check_unclaimed() {
  State& s = *state_;
  try {
    s.start_background();
  } catch (const Error&) {
    return;  // no thread to ask with
  }
  agree(s.world, "checkpoint save", [&] {
    const std::string by = s.is_root() ? s.background->fenced_by() : std::string();
    if (!by.empty()) throw FencedError(by, "another launch runs this job now; stop this one");
  });
}

int Checkpointer::saves_in_flight() const noexcept {
  return state_->background ? state_->background->in_flight() : 0;
}

}  // namespace lockstep
