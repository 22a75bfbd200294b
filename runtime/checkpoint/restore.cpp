// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/copy.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/weights.h"

namespace lockstep {
namespace {

constexpr std::size_t kListed = 20;  // differences in a message

std::string label(const std::string& name, StateKind kind) {
  return kind == StateKind::param ? name : name + " (" + to_string(kind) + ")";
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
  shards_.reserve(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    shards_.push_back(open_shard(store, manifest, shard));
  }
  for (const OpenShard& shard : shards_) {
    for (const Fragment& fragment : shard.head.fragments) {
      if (fragment.kind == "state") continue;
      parts_[std::string(without_run(fragment.path))].push_back(
          {.object = &shard.object, .fragment = &fragment});
    }
  }
}

void CommitReader::read_saved(const TensorLine& tensor, StateKind kind, FlatRun run,
                              std::byte* target) {
  const Box box = whole_box(unsigned_shape(tensor.shape));
  const std::string path = dataset_path(to_string(kind), tensor.name, 0);
  if (run.length == 0) return;
  std::vector<std::pair<Part, std::vector<CopyRun>>> reads;
  std::vector<CopyRun> cover;
  for (const Part& part : parts_[path]) {
    const Fragment& fragment = *part.fragment;
    if (fragment.gshape != unsigned_shape(tensor.shape) ||
        fragment.dtype != saved_type(tensor, kind)) {
      throw DamageError({.object = part.object->key,
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
    read_fragment(store_, *part.object, *part.fragment, runs, target);
  }
}

void CommitReader::read(const TensorLine& tensor, StateKind kind, FlatRun run,
                        const Tensor& target) {
  if (target.device().kind != DeviceKind::cpu) {
    const Tensor staged(Device{}, target.shape(), target.dtype());
    read(tensor, kind, run, staged);
    copy_now(staged, target);
    return;
  }
  const StateKind source = source_of(tensor, kind, target.dtype());
  const DType saved = saved_type(tensor, source);
  if (saved == target.dtype()) {
    read_saved(tensor, source, run, static_cast<std::byte*>(target.data()));
    return;
  }
  std::vector<std::byte> bytes(run.length * size_of(saved));
  read_saved(tensor, source, run, bytes.data());
  const std::vector<float> wide = widened(bytes.data(), run.length, saved);
  kernels::convert_elements(wide.data(), DType::f32, target.data(), target.dtype(), wide.size());
}

DType saved_type(const TensorLine& tensor, StateKind kind) noexcept {
  return kind == StateKind::param ? tensor.dtype : DType::f32;
}

std::vector<std::uint64_t> unsigned_shape(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

void check_table(const Manifest& manifest, const StateDict& state, TableMatch match) {
  std::map<std::pair<std::string, StateKind>, const TensorLine*> saved;
  std::map<std::string, const TensorLine*> param_of;
  for (const TensorLine& tensor : manifest.tensors) {
    param_of[tensor.name] = &tensor;
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
    // Another precision than that of the checkpoint: masters come from parameters, and back.
    if (found == saved.end() && entry.kind == StateKind::master) {
      const auto param = param_of.find(entry.name);
      if (param != param_of.end() && is_weight_type(param->second->dtype) &&
          param->second->shape == entry.shape()) {
        continue;
      }
    }
    if (found == saved.end()) {
      lines.push_back("not in the checkpoint: " + name + " " + to_string(entry.shape()));
      continue;
    }
    const TensorLine& tensor = *found->second;
    const DType dtype = saved_type(tensor, entry.kind);
    const bool same_type = dtype == entry.tensor.dtype() ||
                           (is_weight_type(dtype) && is_weight_type(entry.tensor.dtype()));
    if (tensor.shape != entry.shape() || !same_type) {
      lines.push_back("changed: " + name + " " + to_string(dtype) + " " + to_string(tensor.shape) +
                      " -> " + to_string(entry.tensor.dtype()) + " " + to_string(entry.shape()));
    }
    saved.erase(found);
  }
  if (match == TableMatch::exact) {
    for (const auto& [key, tensor] : saved) {
      if (key.second == StateKind::master && state.find(key.first, StateKind::param)) continue;
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
    for (const StateKind kind : {StateKind::param, StateKind::master, StateKind::m, StateKind::v}) {
      const StateEntry* entry = state.find(tensor.name, kind);
      if (!entry || (kind != StateKind::master && !has_kind(tensor, kind))) continue;
      FlatRun run{.start = 0, .length = static_cast<std::uint64_t>(elements_of(tensor.shape))};
      if (entry->pieces) {
        const auto begin = static_cast<std::uint64_t>(entry->pieces->begin());
        run = {.start = begin, .length = static_cast<std::uint64_t>(entry->pieces->end()) - begin};
      }
      reader.read(tensor, kind, run, entry->tensor);
    }
  }
}

}  // namespace lockstep
