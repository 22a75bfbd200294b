// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/tensor.h"

namespace lockstep {

/// What a tensor of the state is to its parameter.
enum class StateKind : std::uint8_t { param, master, m, v };
const char* to_string(StateKind kind) noexcept;

/// One tensor of the state, bound to live storage.
struct StateEntry {
  std::string name;  // of the parameter, also for its master, m and v
  StateKind kind = StateKind::param;
  Tensor tensor;  // this rank's part
  Placement tensor_axis;
};

/// Names bound to live storage: the same object is saved from and loaded into.
///
/// Order is that of bind(); a (name, kind) pair may be bound once, else UsageError.
class StateDict {
 public:
  void bind(std::string name, StateKind kind, Tensor tensor, Placement tensor_axis = {});
  const std::vector<StateEntry>& entries() const noexcept { return entries_; }
  /// Null if there is none.
  const StateEntry* find(const std::string& name, StateKind kind) const noexcept;

 private:
  std::vector<StateEntry> entries_;
};

}  // namespace lockstep
