// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/sum_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// The level at which one node covers all leaves.
int top_level(std::int64_t leaves) {
  return leaves <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(leaves - 1)));
}

}  // namespace

LeafRange owned_leaves(std::int64_t rank, std::int64_t ranks, std::int64_t leaves) noexcept {
  return {.begin = rank * leaves / ranks, .end = (rank + 1) * leaves / ranks};
}

std::vector<TreeNode> canonical_cover(LeafRange range, std::int64_t leaves) {
  std::vector<TreeNode> cover;
  for (std::int64_t at = range.begin; at < range.end;) {
    int level = 0;
    // Up while the parent begins here too, ends within the range or at the last leaf, and holds
    // more leaves than this node.
    while (at % (std::int64_t{2} << level) == 0 &&
           std::min(at + (std::int64_t{2} << level), leaves) <= range.end &&
           at + (std::int64_t{1} << level) < leaves) {
      ++level;
    }
    cover.push_back({.level = level, .index = at >> level});
    at = std::min(at + (std::int64_t{1} << level), leaves);
  }
  return cover;
}

SumPlan ordered_plan(int ranks) {
  SumPlan plan;
  plan.parts_of_rank.assign(static_cast<std::size_t>(ranks), 1);
  for (int rank = 1; rank < ranks; ++rank) plan.adds.push_back({.into = 0, .from = rank});
  return plan;
}

SumPlan invariant_plan(int ranks, std::int64_t leaves) {
  if (ranks < 1 || ranks > leaves) {
    throw ConfigError(std::to_string(ranks) + " data-parallel ranks for " + std::to_string(leaves) +
                          " leaves (batch.global / batch.micro)",
                      "use at most as many ranks as leaves, or a smaller batch.micro");
  }
  SumPlan plan;
  std::map<std::pair<int, std::int64_t>, int> part_of;  // (level, index) of the nodes so far
  int parts = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto cover = canonical_cover(owned_leaves(rank, ranks, leaves), leaves);
    for (const TreeNode& node : cover) part_of[{node.level, node.index}] = parts++;
    plan.parts_of_rank.push_back(static_cast<int>(cover.size()));
  }
  const int top = top_level(leaves);
  for (int level = 0; level < top; ++level) {
    for (std::int64_t index = 0; (index << level) < leaves; index += 2) {
      const auto left = part_of.find({level, index});
      if (left == part_of.end()) continue;  // inside a node that a rank has summed itself
      const int into = left->second;
      if (((index + 1) << level) < leaves) {
        const auto right = part_of.find({level, index + 1});
        if (right == part_of.end()) continue;
        plan.adds.push_back({.into = into, .from = right->second});
      }
      part_of[{level + 1, index / 2}] = into;
    }
  }
  plan.result = part_of.at({top, 0});
  return plan;
}

}  // namespace lockstep
