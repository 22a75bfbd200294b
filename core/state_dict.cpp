// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/state_dict.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {

const char* to_string(StateKind kind) noexcept {
  switch (kind) {
    case StateKind::param:
      return "param";
    case StateKind::master:
      return "master";
    case StateKind::m:
      return "m";
    case StateKind::v:
      return "v";
  }
  return "?";
}

void StateDict::bind(std::string name, StateKind kind, Tensor tensor, Placement tensor_axis,
                     std::optional<FlatPieces> pieces) {
  if (find(name, kind)) {
    throw UsageError("state " + name + " (" + to_string(kind) + ") is bound twice",
                     "bind a tied tensor once");
  }
  if (pieces && tensor.size() != pieces->end() - pieces->begin()) {
    throw UsageError("state " + name + " (" + to_string(kind) + ") has " +
                         std::to_string(tensor.size()) + " elements, its piece has " +
                         std::to_string(pieces->end() - pieces->begin()),
                     "bind the elements from begin() to end()");
  }
  entries_.push_back({std::move(name), kind, std::move(tensor), tensor_axis, std::move(pieces)});
}

const StateEntry* StateDict::find(const std::string& name, StateKind kind) const noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const StateEntry& entry) {
    return entry.kind == kind && entry.name == name;
  });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace lockstep
