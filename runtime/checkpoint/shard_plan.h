// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/core/tensor.h"
#include "lockstep/runtime/checkpoint.h"

namespace lockstep {

/// Checksums are over pieces of so many bytes, counted from the first byte of a dataset.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
/// More checksums than this do not fit into an attribute of the head.
inline constexpr std::uint64_t kBlockLimit = 16'000;
inline constexpr std::uint64_t kHeadUnit = 65'536;

/// The types that a shard can hold: f32, f16, bf16, u8, i64.
std::optional<DType> saved_dtype(std::string_view name);
bool can_be_saved(DType dtype) noexcept;

/// A box of a tensor, in elements a dimension.
struct Box {
  std::vector<std::uint64_t> start;
  std::vector<std::uint64_t> count;
  bool operator==(const Box&) const = default;
};
std::uint64_t elements_of(const Box& box) noexcept;
Box whole_box(const std::vector<std::uint64_t>& shape);

/// Consecutive elements of the row-major flattening of a box.
struct FlatRun {
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  bool operator==(const FlatRun&) const = default;
};

/// One dataset of a shard: a box of a tensor or a flat run of one.
struct Fragment {
  std::string kind;  // "param", "master", "m", "v" or "state"
  std::string path;  // in the shard
  DType dtype = DType::f32;
  std::vector<std::uint64_t> gshape;  // of the whole tensor, without padding
  Box box;
  std::optional<FlatRun> flat;
  std::optional<std::uint64_t> replica;  // above 0: an extra copy that covers nothing
  std::uint64_t offset = 0;              // in the shard, bytes
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crcs;  // a block
  std::size_t source = 0;           // index of the PlanTensor, when writing
};
std::uint64_t elements_of(const Fragment& fragment) noexcept;
std::uint64_t blocks_of(const Fragment& fragment) noexcept;

/// A tensor to save: the same on every data-parallel rank, or in pieces, of which rank r holds the
/// elements [edges[r], edges[r + 1]).
struct PlanTensor {
  std::string name;
  StateKind kind = StateKind::param;
  DType dtype = DType::f32;
  std::vector<std::uint64_t> gshape;
  std::vector<std::uint64_t> edges = {};  // none: no pieces
  bool operator==(const PlanTensor&) const = default;
};

/// Which writer writes what: the datasets of each of `writers` shards, without offsets.
///
/// A pure function. The tensors that all ranks have are laid end to end in file order (params by
/// name, then master, m and v tensor by tensor) and the line is cut into equal numbers of bytes. A
/// cut within a tensor moves down to a multiple of 1,024 elements; the pieces become flat runs. Of
/// a tensor in pieces each rank writes its own, in the same order of the file. Datasets of more
/// than `block_limit` blocks are split further. A tensor of no elements has no dataset.
std::vector<std::vector<Fragment>> plan_shards(const std::vector<PlanTensor>& tensors,
                                               std::uint64_t writers,
                                               std::uint64_t block_limit = kBlockLimit);

/// Where a dataset of `bytes` starts if everything before it ends at `end`.
std::uint64_t aligned_start(std::uint64_t end, std::uint64_t bytes) noexcept;
/// Sets the offsets behind a head of `head_bytes`; returns the size of the shard.
std::uint64_t place_fragments(std::vector<Fragment>& fragments, std::uint64_t head_bytes) noexcept;

/// SHA-256 over the description of all shards: what must be equal for two plans to be equal.
std::string plan_sha256(const CheckpointMesh& mesh,
                        const std::vector<std::vector<Fragment>>& shards);

}  // namespace lockstep
