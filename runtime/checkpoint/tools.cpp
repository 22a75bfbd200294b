// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/tools.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/restore.h"

namespace lockstep {
namespace {

/// The tensors of `state` that the commit holds alike, and a line in `left_out` for each other one.
StateDict common_part(const Manifest& manifest, const StateDict& state,
                      std::vector<std::string>& left_out) {
  std::set<const StateEntry*> other;
  for (TableDifference& difference : table_differences(manifest, state)) {
    other.insert(difference.entry);
    // A parameter that is there without its optimizer state is not asked for more.
    if (difference.entry == nullptr && state.find(difference.name, StateKind::param)) continue;
    left_out.push_back(std::move(difference.text));
  }
  StateDict common;
  for (const StateEntry& entry : state.entries()) {
    if (other.count(&entry) > 0) continue;
    common.bind(entry.name, entry.kind, entry.tensor, entry.tensor_axis, entry.pieces);
  }
  return common;
}

}  // namespace

const char* to_string(CommitStatus status) noexcept {
  switch (status) {
    case CommitStatus::live:
      return "live";
    case CommitStatus::retired:
      return "retired";
    case CommitStatus::damaged:
      return "damaged";
  }
  return "?";
}

std::string to_string(const Damage& damage) {
  std::string text = damage.object;
  if (!damage.dataset.empty()) text += " dataset " + damage.dataset;
  if (damage.block) text += " block " + std::to_string(*damage.block);
  return text + ": " + damage.what;
}

std::unique_ptr<ObjectStore> open_checkpoints(const std::string& run_or_uri) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path run(run_or_uri);
  if (fs::is_directory(run, ignored)) {
    for (const fs::path& folder : {run / "checkpoints", run}) {
      if (fs::is_directory(folder / "log", ignored)) {
        return ObjectStore::open("file:" + folder.string());
      }
    }
    throw ConfigError("folder " + run_or_uri + " holds no checkpoints",
                      "give the run folder, or the store as file:PATH");
  }
  const std::size_t colon = run_or_uri.find(':');
  if (colon == std::string::npos || run_or_uri.find('/') < colon) {
    throw ConfigError("there is no folder " + run_or_uri,
                      "give the run folder, or the store as file:PATH");
  }
  return ObjectStore::open(run_or_uri);
}

CheckpointList list_commits(ObjectStore& store) {
  const LogView view = read_log(store);
  CheckpointList list{
      .job = view.job(), .attempts = view.epoch(), .commits = {}, .log_damages = view.damages()};
  for (const Commit& commit : view.commits()) {
    list.commits.push_back({.commit = info_of(commit), .status = commit.status});
  }
  return list;
}

FoundCommit find_commit(ObjectStore& store, std::optional<std::uint64_t> step) {
  const LogView view = read_log(store);
  const Commit* commit = view.newest(step);
  if (!commit) {
    throw DataError("store " + store.uri() + " has no live checkpoint" +
                        (step ? " of step " + std::to_string(*step) : std::string()),
                    "see `lockstep ckpt ls`", Outcome::no_checkpoint);
  }
  return {.commit = info_of(*commit), .manifest = read_manifest(store, view, *commit)};
}

CommitDetail show_commit(ObjectStore& store, std::optional<std::uint64_t> step) {
  FoundCommit found = find_commit(store, step);
  CommitDetail detail{.commit = std::move(found.commit),
                      .mesh = found.manifest.mesh,
                      .state = std::move(found.manifest.state),
                      .tensors = std::move(found.manifest.tensors),
                      .shards = {},
                      .parameters = found.manifest.parameters};
  for (const ManifestShard& shard : found.manifest.shards) {
    detail.shards.push_back({.key = shard.key, .size = shard.size});
  }
  return detail;
}

LoadResult load_commit(ObjectStore& store, const StateDict& state,
                       std::optional<std::uint64_t> step, LoadMatch match) {
  FoundCommit found = find_commit(store, step);
  std::vector<std::string> warnings;
  if (match == LoadMatch::every) {
    check_table(found.manifest, state, TableMatch::subset);
    restore(store, found.manifest, state);
  } else {
    restore(store, found.manifest, common_part(found.manifest, state, warnings));
  }
  return {.state = std::move(found.manifest.state),
          .commit = std::move(found.commit),
          .warnings = std::move(warnings)};
}

}  // namespace lockstep
