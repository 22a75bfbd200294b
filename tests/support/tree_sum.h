// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/collectives/sum_plan.h"

namespace lockstep::testing_support {

/// The sum of a tree node straight from its definition (design: reduction = invariant); nothing if
/// it lies behind the last leaf.
inline std::optional<float> tree_sum(const std::vector<float>& leaves, TreeNode node) {
  const std::int64_t first = node.index << node.level;
  if (first >= static_cast<std::int64_t>(leaves.size())) return std::nullopt;
  if (node.level == 0) return leaves[static_cast<std::size_t>(first)];
  const auto left = tree_sum(leaves, {.level = node.level - 1, .index = 2 * node.index});
  const auto right = tree_sum(leaves, {.level = node.level - 1, .index = 2 * node.index + 1});
  return right ? *left + *right : *left;
}

/// The sum over all leaves.
inline float tree_sum(const std::vector<float>& leaves) {
  int level = 0;
  while ((std::size_t{1} << level) < leaves.size()) ++level;
  return *tree_sum(leaves, {.level = level, .index = 0});
}

}  // namespace lockstep::testing_support
