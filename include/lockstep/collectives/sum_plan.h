// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/core/tensor.h"

namespace lockstep {

/// Leaves [begin, end) of the global batch.
struct LeafRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const noexcept { return end - begin; }
};

/// The leaves of `rank` of `ranks`: [⌊rank·leaves/ranks⌋, ⌊(rank+1)·leaves/ranks⌋).
LeafRange owned_leaves(std::int64_t rank, std::int64_t ranks, std::int64_t leaves) noexcept;

/// A node of the reduction tree: leaves [index·2^level, (index+1)·2^level) cut at the leaf count.
struct TreeNode {
  int level = 0;
  std::int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

/// The fewest nodes that cover the leaves of `range` exactly, left to right.
std::vector<TreeNode> canonical_cover(LeafRange range, std::int64_t leaves);

/// A program of additions: how the parts of all ranks become one sum, the same on every rank.
///
/// Parts are numbered rank by rank, each rank's in its own order.
struct SumPlan {
  struct Add {
    int into = 0;
    int from = 0;
    bool operator==(const Add&) const = default;
  };
  std::vector<int> parts_of_rank;  // how many parts each rank gives
  std::vector<Add> adds;           // part[into] += part[from], one f32 addition each, in this order
  int result = 0;                  // the part that then holds the sum
  // f32 or bf16: what the parts are exact in, and what the sum is rounded to. They are f32 in
  // memory; a backend may send them in these types.
  DType parts_type = DType::f32;
  DType sum_type = DType::f32;
};

/// One part a rank, added in rank order: ((p0 + p1) + p2) + …
SumPlan ordered_plan(int ranks);

/// Each rank gives the sums of its canonical cover; they are combined up the tree, left + right, so
/// that the bits are those of the whole tree for any number of ranks.
/// Throws ConfigError if there are more ranks than leaves.
SumPlan invariant_plan(int ranks, std::int64_t leaves);

}  // namespace lockstep
