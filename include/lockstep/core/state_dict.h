// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/tensor.h"

namespace lockstep {

/// What a tensor of the state is to its parameter.
enum class StateKind : std::uint8_t { param, master, m, v };
const char* to_string(StateKind kind) noexcept;

/// A tensor that the data-parallel ranks hold in pieces: rank r has the elements
/// [edges[r], edges[r + 1]) of its row-major flattening. The same on all of them, but for `rank`.
struct FlatPieces {
  Shape shape;                      // of the whole tensor
  std::vector<std::int64_t> edges;  // from 0 to its size
  std::size_t rank = 0;             // this one

  std::int64_t begin() const { return edges.at(rank); }
  std::int64_t end() const { return edges.at(rank + 1); }
};

/// One tensor of the state, bound to live storage.
struct StateEntry {
  std::string name;  // of the parameter, also for its master, m and v
  StateKind kind = StateKind::param;
  Tensor tensor;  // this rank's part
  Placement tensor_axis;
  std::optional<FlatPieces> pieces;  // none: every data-parallel rank has all of it

  const Shape& shape() const noexcept { return pieces ? pieces->shape : tensor.shape(); }
};

/// Names bound to live storage: the same object is saved from and loaded into.
///
/// Order is that of bind(); a (name, kind) pair may be bound once, else UsageError.
class StateDict {
 public:
  /// `tensor` has as many elements as this rank's piece, if there are pieces; else UsageError.
  void bind(std::string name, StateKind kind, Tensor tensor, Placement tensor_axis = {},
            std::optional<FlatPieces> pieces = {});
  const std::vector<StateEntry>& entries() const noexcept { return entries_; }
  /// Null if there is none.
  const StateEntry* find(const std::string& name, StateKind kind) const noexcept;

 private:
  std::vector<StateEntry> entries_;
};

}  // namespace lockstep
