// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit_index.h"

#include <algorithm>
#include <utility>

#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {

DType saved_type(const TensorLine& tensor, StateKind kind) noexcept {
  return kind == StateKind::param ? tensor.dtype : DType::f32;
}

bool has_kind(const TensorLine& tensor, StateKind kind) noexcept {
  return std::find(tensor.kinds.begin(), tensor.kinds.end(), kind) != tensor.kinds.end();
}

StateKind source_of(const TensorLine& tensor, StateKind kind, DType wanted) noexcept {
  if (kind == StateKind::master && !has_kind(tensor, kind)) return StateKind::param;
  // The master has the digits that a wider parameter wants.
  if (kind == StateKind::param && wanted != tensor.dtype && has_kind(tensor, StateKind::master)) {
    return StateKind::master;
  }
  return kind;
}

std::vector<std::uint64_t> unsigned_shape(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

CommitIndex::CommitIndex(const Manifest& manifest, std::vector<OpenShard> shards)
    : manifest_(manifest), shards_(std::move(shards)) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    for (const Fragment& fragment : shards_[shard].head.fragments) {
      if (fragment.kind == "state") continue;
      places_[std::string(without_run(fragment.path))].push_back(
          {.shard = shard, .fragment = &fragment});
    }
  }
}

std::vector<CommitPart> CommitIndex::find(const TensorLine& tensor, StateKind kind,
                                          FlatRun run) const {
  if (run.length == 0) return {};
  const Box box = whole_box(unsigned_shape(tensor.shape));
  const std::string path = dataset_path(to_string(kind), tensor.name, 0);
  std::vector<CommitPart> parts;
  std::vector<CopyRun> cover;
  const auto places = places_.find(path);
  for (const Place& place : places == places_.end() ? std::vector<Place>() : places->second) {
    const Fragment& fragment = *place.fragment;
    if (fragment.gshape != box.count || fragment.dtype != saved_type(tensor, kind)) {
      throw DamageError({.object = shards_[place.shard].object.key,
                         .dataset = fragment.path,
                         .block = {},
                         .what = "shape or type differ from the manifest's"});
    }
    if (fragment.replica.value_or(0) > 0) continue;
    std::vector<CopyRun> runs = clipped(copy_runs(fragment, box), run);
    cover.insert(cover.end(), runs.begin(), runs.end());
    if (!runs.empty()) {
      parts.push_back({.shard = place.shard, .fragment = &fragment, .runs = std::move(runs)});
    }
  }
  const std::string fault = cover_fault(std::move(cover), run.length);
  if (!fault.empty()) {
    throw DamageError({.object = manifest_.shards.empty() ? "" : manifest_.shards.front().key,
                       .dataset = path,
                       .block = {},
                       .what = fault});
  }
  return parts;
}

}  // namespace lockstep
