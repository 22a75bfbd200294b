// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"

namespace lockstep {

/// The datasets of a commit, by tensor. Reads and checks all heads at construction; throws
/// DamageError. One thread.
class CommitReader {
 public:
  CommitReader(ObjectStore& store, const Manifest& manifest);

  /// Fills `target` with the elements `run` of the tensor's row-major flattening. Its type may be
  /// another of weights than the saved one: a master that was not saved is the widened parameter,
  /// and a parameter of another type comes from the master. Throws DamageError for damage, a hole
  /// or an overlap.
  void read(const TensorLine& tensor, StateKind kind, FlatRun run, const Tensor& target);

 private:
  struct Part {
    const SeenObject* object;  // the shard
    const Fragment* fragment;
  };

  /// In the saved type.
  void read_saved(const TensorLine& tensor, StateKind kind, FlatRun run, std::byte* target);

  PageReader store_;
  const Manifest& manifest_;
  std::vector<OpenShard> shards_;                   // by writer
  std::map<std::string, std::vector<Part>> parts_;  // by path of the first run
};

/// The type in which a kind of a tensor is saved: that of the parameter, f32 for optimizer state.
DType saved_type(const TensorLine& tensor, StateKind kind) noexcept;

std::vector<std::uint64_t> unsigned_shape(const Shape& shape);

enum class TableMatch : std::uint8_t { exact, subset };

/// Throws ConfigError that lists the differences unless `state` holds the manifest's tensors: all
/// of them, or some.
void check_table(const Manifest& manifest, const StateDict& state, TableMatch match);

/// Fills the tensors of `state`, which has passed check_table.
void restore(ObjectStore& store, const Manifest& manifest, const StateDict& state);

}  // namespace lockstep
