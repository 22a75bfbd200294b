// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/background_saves.h"
#include "runtime/checkpoint/head.h"
#include "runtime/checkpoint/job.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/save_plan.h"
#include "runtime/checkpoint/snapshot.h"

namespace lockstep {

/// Which rank writes what, with the places in the shards. Depends on the table alone.
struct PlacedShards {
  std::vector<PlanTensor> tensors;  // what it was made for
  std::vector<std::vector<Fragment>> fragments;
  std::vector<std::uint64_t> head_bytes;
  std::string plan_sha256;
};

/// A save as all ranks have agreed on it.
struct AgreedSave {
  SaveId id;
  TrainState scalars;
  SaveTable table;
  std::shared_ptr<const PlacedShards> shards;
};

struct Checkpointer::State {
  ObjectStore& store;
  Communicator& world;
  CheckpointOptions options;
  std::optional<Job> job = {};  // after open(), on rank 0; while a save is in flight, its thread's
  std::string job_id = {};
  std::uint64_t epoch = 0;
  // Saves of one step get a number each: the objects of a failed one may still be on their way.
  std::uint64_t last_step = 0;
  std::uint64_t tries = 0;
  std::shared_ptr<const PlacedShards> placed = {};  // of the last save
  std::unique_ptr<BackgroundSaves> background = {};
  bool told_slow_copies = false;

  bool is_root() const noexcept { return world.rank() == 0; }

  /// Runs `body` on rank 0; its text on every rank.
  std::string on_root(const char* what, const std::function<std::string()>& body) {
    std::string text;
    agree(world, what, [&] {
      if (is_root()) text = body();
    });
    return broadcast_text(world, text, 0);
  }

  /// Collective: refuses ranks that save different things, and plans.
  AgreedSave agree_on_save(const TrainState& scalars, const StateDict& state);
  std::shared_ptr<const PlacedShards> place_shards(const SaveTable& table);

  /// On rank 0: Job::commit(), its result as a message.
  std::string commit(const SaveId& id, const Manifest& manifest);
  /// Collective: makes `background` on every rank, or throws StorageError and leaves it on none.
  void start_background();
  /// Collective: what is worth a line about a copy from a GPU, once.
  std::vector<std::string> remarks_on(const Snapshot& copy);

  /// The head of this rank's shard, without checksums.
  ShardHead own_head(const AgreedSave& save) const;
  Manifest manifest_of(const AgreedSave& save, const std::vector<std::string>& written) const;
};

/// Removes objects of a save that failed; what cannot be removed is left to the sweep of the next
/// launch.
void forget(ObjectStore& store, const std::vector<std::string>& keys) noexcept;

}  // namespace lockstep
