// SPDX-License-Identifier: Apache-2.0
#include "collectives/leaf_schedule.h"

#include <algorithm>

namespace lockstep {
namespace {

struct Pending {
  TreeNode node;
  int arena = 0;
};

int lowest_free(const std::vector<Pending>& pending) {
  const auto taken = [&](int arena) {
    return std::any_of(pending.begin(), pending.end(),
                       [arena](const Pending& node) { return node.arena == arena; });
  };
  int arena = 0;
  while (taken(arena)) ++arena;
  return arena;
}

// Adds the last pending node to its left neighbour for as long as that is pending too.
std::vector<SumPlan::Add> merge_up(std::vector<Pending>& pending, std::int64_t leaves) {
  std::vector<SumPlan::Add> merges;
  for (;;) {
    const Pending last = pending.back();
    const TreeNode parent{.level = last.node.level + 1, .index = last.node.index / 2};
    if (last.node.index % 2 == 1) {
      const TreeNode sibling{.level = last.node.level, .index = last.node.index - 1};
      if (pending.size() < 2 || pending[pending.size() - 2].node != sibling) return merges;
      pending.pop_back();
      merges.push_back({.into = pending.back().arena, .from = last.arena});
    } else if (last.node.index == 0 || ((last.node.index + 1) << last.node.level) < leaves) {
      return merges;  // the root, or a node whose right neighbour is still to come
    }
    // Without a right neighbour a node is its parent, unchanged.
    pending.back().node = parent;
  }
}

}  // namespace

LeafSchedule accumulate_schedule(LeafRange range) {
  LeafSchedule schedule;
  schedule.parts = {0};
  for (std::int64_t leaf = range.begin; leaf < range.end; ++leaf) {
    schedule.leaves.push_back({.arena = 0, .add = leaf != range.begin, .merges = {}});
  }
  return schedule;
}

LeafSchedule tree_schedule(LeafRange range, std::int64_t leaves) {
  LeafSchedule schedule;
  std::vector<Pending> pending;
  for (std::int64_t leaf = range.begin; leaf < range.end; ++leaf) {
    const int arena = lowest_free(pending);
    schedule.arenas = std::max(schedule.arenas, arena + 1);
    pending.push_back({.node = {.level = 0, .index = leaf}, .arena = arena});
    schedule.leaves.push_back({.arena = arena, .add = false, .merges = merge_up(pending, leaves)});
  }
  for (const Pending& node : pending) schedule.parts.push_back(node.arena);
  return schedule;
}

}  // namespace lockstep
