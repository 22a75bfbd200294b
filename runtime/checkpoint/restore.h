// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/commit_index.h"
#include "runtime/checkpoint/manifest.h"

namespace lockstep {

/// The datasets of a commit, by tensor. Reads and checks all heads at construction; throws
/// DamageError. One thread.
class CommitReader {
 public:
  CommitReader(ObjectStore& store, const Manifest& manifest);

  /// Fills `target` with the elements `run` of the tensor's row-major flattening. Its type may be
  /// another of weights than the saved one, see source_of(). Throws DamageError for damage, a hole
  /// or an overlap.
  void read(const TensorLine& tensor, StateKind kind, FlatRun run, const Tensor& target);

 private:
  /// In the saved type.
  void read_saved(const TensorLine& tensor, StateKind kind, FlatRun run, std::byte* target);

  PageReader store_;
  CommitIndex index_;
};

/// A tensor in which a state and a commit differ.
struct TableDifference {
  std::string name;                   // of the parameter
  const StateEntry* entry = nullptr;  // of the state; null: only the commit holds it
  std::string text;                   // for people: kind, types and shapes
};
std::vector<TableDifference> table_differences(const Manifest& manifest, const StateDict& state);

enum class TableMatch : std::uint8_t { exact, subset };

/// Throws ConfigError that lists the differences unless `state` holds the manifest's tensors: all
/// of them, or some.
void check_table(const Manifest& manifest, const StateDict& state, TableMatch match);

/// A tensor of a state that is to be filled from a commit.
struct RestoredTensor {
  const TensorLine* line = nullptr;
  const StateEntry* entry = nullptr;
  FlatRun run;  // of the whole tensor, row-major: what this rank holds
};

/// The tensors of `state`, which has passed check_table, in the order of the manifest.
std::vector<RestoredTensor> restored_tensors(const Manifest& manifest, const StateDict& state);

/// Fills the tensors of `state`, which has passed check_table.
void restore(ObjectStore& store, const Manifest& manifest, const StateDict& state);

}  // namespace lockstep
