// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {
namespace {

constexpr std::size_t kListed = 20;  // differences in a message

std::string label(const std::string& name, StateKind kind) {
  return kind == StateKind::param ? name : name + " (" + to_string(kind) + ")";
}

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kListed); ++i) text += "\n  " + lines[i];
  if (lines.size() > kListed) {
    text += "\n  and " + std::to_string(lines.size() - kListed) + " more";
  }
  return text;
}

}  // namespace

CommitReader::CommitReader(ObjectStore& store, const Manifest& manifest)
    : store_(store), manifest_(manifest) {
  heads_.reserve(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    heads_.push_back(read_head(store, manifest, shard));
  }
  for (std::size_t writer = 0; writer < heads_.size(); ++writer) {
    for (const Fragment& fragment : heads_[writer].fragments) {
      if (fragment.kind == "state") continue;
      parts_[std::string(without_run(fragment.path))].push_back(
          {.key = &manifest.shards[writer].key, .fragment = &fragment});
    }
  }
}

void CommitReader::read(const TensorLine& tensor, StateKind kind, std::byte* target) {
  const Box box = whole_box(unsigned_shape(tensor.shape));
  read(tensor, kind, box, {.start = 0, .length = elements_of(box)}, target);
}

void CommitReader::read(const TensorLine& tensor, StateKind kind, const Box& box, FlatRun run,
                        std::byte* target) {
  const std::string path = dataset_path(to_string(kind), tensor.name, 0);
  if (run.length == 0) return;
  std::vector<std::pair<Part, std::vector<CopyRun>>> reads;
  std::vector<CopyRun> cover;
  for (const Part& part : parts_[path]) {
    const Fragment& fragment = *part.fragment;
    if (fragment.gshape != unsigned_shape(tensor.shape) ||
        fragment.dtype != saved_type(tensor, kind)) {
      throw DamageError({.object = *part.key,
                         .dataset = fragment.path,
                         .block = {},
                         .what = "shape or type differ from the manifest's"});
    }
    if (fragment.replica.value_or(0) > 0) continue;
    std::vector<CopyRun> runs = clipped(copy_runs(fragment, box), run);
    cover.insert(cover.end(), runs.begin(), runs.end());
    if (!runs.empty()) reads.emplace_back(part, std::move(runs));
  }
  const std::string fault = cover_fault(std::move(cover), run.length);
  if (!fault.empty()) {
    throw DamageError({.object = manifest_.shards.empty() ? "" : manifest_.shards.front().key,
                       .dataset = path,
                       .block = {},
                       .what = fault});
  }
  for (const auto& [part, runs] : reads) {
    read_fragment(store_, *part.key, *part.fragment, runs, target);
  }
}

DType saved_type(const TensorLine& tensor, StateKind kind) noexcept {
  return kind == StateKind::param ? tensor.dtype : DType::f32;
}

std::vector<std::uint64_t> unsigned_shape(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

void check_table(const Manifest& manifest, const StateDict& state, TableMatch match) {
  std::map<std::pair<std::string, StateKind>, const TensorLine*> saved;
  for (const TensorLine& tensor : manifest.tensors) {
    for (const StateKind kind : tensor.kinds) saved[{tensor.name, kind}] = &tensor;
  }
  std::vector<std::string> lines;
  for (const StateEntry& entry : state.entries()) {
    const std::string name = label(entry.name, entry.kind);
    if (entry.tensor_axis.kind != PlacementKind::replicated) {
      throw UsageError("tensor " + name + " is not replicated",
                       "this build saves and loads data-parallel replicas");
    }
    const auto found = saved.find({entry.name, entry.kind});
    if (found == saved.end()) {
      lines.push_back("not in the checkpoint: " + name + " " + to_string(entry.shape()));
      continue;
    }
    const TensorLine& tensor = *found->second;
    const DType dtype = saved_type(tensor, entry.kind);
    if (tensor.shape != entry.shape() || dtype != entry.tensor.dtype()) {
      lines.push_back("changed: " + name + " " + to_string(dtype) + " " + to_string(tensor.shape) +
                      " -> " + to_string(entry.tensor.dtype()) + " " + to_string(entry.shape()));
    }
    saved.erase(found);
  }
  if (match == TableMatch::exact) {
    for (const auto& [key, tensor] : saved) {
      lines.push_back("only in the checkpoint: " + label(key.first, key.second) + " " +
                      to_string(tensor->shape));
    }
  }
  if (lines.empty()) return;
  throw ConfigError("the checkpoint of step " + std::to_string(manifest.state.step) +
                        " holds other tensors:" + joined_lines(lines),
                    "resume with the model and the optimizer of the first start, or use another "
                    "run folder");
}

void restore(ObjectStore& store, const Manifest& manifest, const StateDict& state) {
  CommitReader reader(store, manifest);
  for (const TensorLine& tensor : manifest.tensors) {
    for (const StateKind kind : tensor.kinds) {
      const StateEntry* entry = state.find(tensor.name, kind);
      if (!entry) continue;
      auto* const target = static_cast<std::byte*>(entry->tensor.data());
      if (!entry->pieces) {
        reader.read(tensor, kind, target);
        continue;
      }
      const auto begin = static_cast<std::uint64_t>(entry->pieces->begin());
      const auto end = static_cast<std::uint64_t>(entry->pieces->end());
      reader.read(tensor, kind, whole_box(unsigned_shape(tensor.shape)),
                  {.start = begin, .length = end - begin}, target);
    }
  }
}

}  // namespace lockstep
