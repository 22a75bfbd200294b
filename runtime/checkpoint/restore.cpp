// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/copy.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/weights.h"

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

std::vector<OpenShard> open_shards(ObjectStore& store, const Manifest& manifest) {
  std::vector<OpenShard> shards;
  shards.reserve(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    shards.push_back(open_shard(store, manifest, shard));
  }
  return shards;
}

}  // namespace

CommitReader::CommitReader(ObjectStore& store, const Manifest& manifest)
    : store_(store), index_(manifest, open_shards(store, manifest)) {}

void CommitReader::read_saved(const TensorLine& tensor, StateKind kind, FlatRun run,
                              std::byte* target) {
  for (const CommitPart& part : index_.find(tensor, kind, run)) {
    const SeenObject& object = index_.shards()[part.shard].object;
    read_fragment(store_, object, *part.fragment, part.runs, target);
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

std::vector<TableDifference> table_differences(const Manifest& manifest, const StateDict& state) {
  std::map<std::pair<std::string, StateKind>, const TensorLine*> saved;
  std::map<std::string, const TensorLine*> param_of;
  for (const TensorLine& tensor : manifest.tensors) {
    param_of[tensor.name] = &tensor;
    for (const StateKind kind : tensor.kinds) saved[{tensor.name, kind}] = &tensor;
  }
  std::vector<TableDifference> differences;
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
      differences.push_back(
          {.name = entry.name,
           .entry = &entry,
           .text = "not in the checkpoint: " + name + " " + to_string(entry.shape())});
      continue;
    }
    const TensorLine& tensor = *found->second;
    const DType dtype = saved_type(tensor, entry.kind);
    const bool same_type = dtype == entry.tensor.dtype() ||
                           (is_weight_type(dtype) && is_weight_type(entry.tensor.dtype()));
    if (tensor.shape != entry.shape() || !same_type) {
      differences.push_back(
          {.name = entry.name,
           .entry = &entry,
           .text = "changed: " + name + " " + to_string(dtype) + " " + to_string(tensor.shape) +
                   " -> " + to_string(entry.tensor.dtype()) + " " + to_string(entry.shape())});
    }
    saved.erase(found);
  }
  for (const auto& [key, tensor] : saved) {
    if (key.second == StateKind::master && state.find(key.first, StateKind::param)) continue;
    differences.push_back({.name = key.first,
                           .entry = nullptr,
                           .text = "only in the checkpoint: " + label(key.first, key.second) + " " +
                                   to_string(tensor->shape)});
  }
  return differences;
}

void check_table(const Manifest& manifest, const StateDict& state, TableMatch match) {
  std::vector<std::string> lines;
  for (TableDifference& difference : table_differences(manifest, state)) {
    if (match == TableMatch::subset && difference.entry == nullptr) continue;
    lines.push_back(std::move(difference.text));
  }
  if (lines.empty()) return;
  throw ConfigError("the checkpoint of step " + std::to_string(manifest.state.step) +
                        " holds other tensors:" + joined_lines(lines),
                    "resume with the model and the optimizer of the first start, or use another "
                    "run folder");
}

std::vector<RestoredTensor> restored_tensors(const Manifest& manifest, const StateDict& state) {
  std::vector<RestoredTensor> tensors;
  for (const TensorLine& tensor : manifest.tensors) {
    for (const StateKind kind : {StateKind::param, StateKind::master, StateKind::m, StateKind::v}) {
      const StateEntry* entry = state.find(tensor.name, kind);
      if (!entry || (kind != StateKind::master && !has_kind(tensor, kind))) continue;
      FlatRun run{.start = 0, .length = static_cast<std::uint64_t>(elements_of(tensor.shape))};
      if (entry->pieces) {
        const auto begin = static_cast<std::uint64_t>(entry->pieces->begin());
        run = {.start = begin, .length = static_cast<std::uint64_t>(entry->pieces->end()) - begin};
      }
      tensors.push_back({.line = &tensor, .entry = entry, .run = run});
    }
  }
  return tensors;
}

void restore(ObjectStore& store, const Manifest& manifest, const StateDict& state) {
  CommitReader reader(store, manifest);
  for (const RestoredTensor& tensor : restored_tensors(manifest, state)) {
    reader.read(*tensor.line, tensor.entry->kind, tensor.run, tensor.entry->tensor);
  }
}

}  // namespace lockstep
