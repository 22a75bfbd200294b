// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save_plan.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/restore.h"

namespace lockstep {
namespace {

void check_entry(const StateDict& state, const StateEntry& entry, int ranks) {
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw UsageError("checkpoint: " + entry.name + " (" + to_string(entry.kind) + ") " + what,
                     hint);
  };
  if (entry.tensor_axis.kind != PlacementKind::replicated) {
    refuse("is not replicated", "this build saves data-parallel replicas");
  }
  if (!can_be_saved(entry.tensor.dtype())) {
    refuse(std::string("is of type ") + to_string(entry.tensor.dtype()),
           "use f32, bf16, f16, i64 or u8");
  }
  if (entry.pieces && entry.pieces->edges.size() != static_cast<std::size_t>(ranks) + 1) {
    refuse("is in " + std::to_string(entry.pieces->edges.size() - 1) + " pieces on " +
               std::to_string(ranks) + " ranks",
           "a piece a data-parallel rank");
  }
  if (entry.kind == StateKind::param) return;
  const StateEntry* param = state.find(entry.name, StateKind::param);
  if (!param || param->shape() != entry.shape()) {
    refuse("has no parameter of its shape", "bind the parameter under the same name");
  }
  if (entry.tensor.dtype() != DType::f32) refuse("is not f32", "optimizer state is kept in f32");
  if (entry.kind == StateKind::master && param->tensor.dtype() == DType::f32) {
    refuse("belongs to an f32 parameter", "only bf16 and f16 parameters have a master");
  }
}

}  // namespace

SaveTable make_table(const StateDict& state, int ranks) {
  SaveTable table;
  for (const StateEntry& entry : state.entries()) {
    check_entry(state, entry, ranks);
    table.tensors.push_back({.name = entry.name,
                             .kind = entry.kind,
                             .dtype = entry.tensor.dtype(),
                             .gshape = unsigned_shape(entry.shape())});
    if (entry.pieces) {
      const auto& edges = entry.pieces->edges;
      table.tensors.back().edges.assign(edges.begin(), edges.end());
    }
    if (entry.kind != StateKind::param) continue;
    TensorLine line{.name = entry.name,
                    .shape = entry.shape(),
                    .dtype = entry.tensor.dtype(),
                    .kinds = {StateKind::param}};
    for (const StateKind kind : {StateKind::master, StateKind::m, StateKind::v}) {
      if (state.find(entry.name, kind)) line.kinds.push_back(kind);
    }
    table.parameters += elements_of(whole_box(unsigned_shape(entry.shape())));
    table.lines.push_back(std::move(line));
  }
  std::sort(table.lines.begin(), table.lines.end(),
            [](const TensorLine& a, const TensorLine& b) { return a.name < b.name; });
  return table;
}

std::string fingerprint(const SaveTable& table, const TrainState& scalars) {
  Manifest manifest;
  manifest.tensors = table.lines;
  manifest.state = scalars;
  return to_hex(sha256(encode(manifest)));
}

}  // namespace lockstep
