// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"

namespace lockstep {

/// The type in which a kind of a tensor is saved: that of the parameter, f32 for optimizer state.
DType saved_type(const TensorLine& tensor, StateKind kind) noexcept;

bool has_kind(const TensorLine& tensor, StateKind kind) noexcept;

/// What a tensor of the type `wanted` is filled from: a master that was not saved is the widened
/// parameter, and a parameter of another type comes from the master.
StateKind source_of(const TensorLine& tensor, StateKind kind, DType wanted) noexcept;

std::vector<std::uint64_t> unsigned_shape(const Shape& shape);

/// What a dataset holds of something that is read.
struct CommitPart {
  std::size_t shard = 0;  // index, by writer
  const Fragment* fragment = nullptr;
  std::vector<CopyRun> runs;  // in rising order of `source`
};

/// The datasets of a commit, by tensor. Does not read.
class CommitIndex {
 public:
  /// `shards`: all of the manifest's, by writer. The manifest outlives this.
  CommitIndex(const Manifest& manifest, std::vector<OpenShard> shards);

  /// Where the elements `run` of the tensor's row-major flattening are, as saved. Throws
  /// DamageError for a dataset that does not fit the manifest, a hole or an overlap.
  std::vector<CommitPart> find(const TensorLine& tensor, StateKind kind, FlatRun run) const;

  const std::vector<OpenShard>& shards() const noexcept { return shards_; }

 private:
  struct Place {
    std::size_t shard;
    const Fragment* fragment;
  };

  const Manifest& manifest_;
  std::vector<OpenShard> shards_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;  // by path of the first run
};

}  // namespace lockstep
