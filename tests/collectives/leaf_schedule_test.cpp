// SPDX-License-Identifier: Apache-2.0
#include "collectives/leaf_schedule.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/tree_sum.h"

namespace lockstep {
namespace {

std::size_t to_size(std::int64_t index) { return static_cast<std::size_t>(index); }

TEST(LeafSchedule, LeavesTheCanonicalCoverInItsParts) {
  for (std::int64_t count = 1; count <= 24; ++count) {
    std::vector<float> leaves;
    for (std::int64_t i = 0; i < count; ++i) {
      leaves.push_back(
          std::ldexp(1.0F + 0.37F * static_cast<float>(i), static_cast<int>(7 * i % 19) - 9));
    }
    for (std::int64_t ranks = 1; ranks <= count; ++ranks) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const LeafRange range = owned_leaves(rank, ranks, count);
        const LeafSchedule schedule = tree_schedule(range, count);
        std::vector<float> arenas(to_size(schedule.arenas), NAN);
        for (std::int64_t leaf = range.begin; leaf < range.end; ++leaf) {
          const LeafSchedule::Leaf& step = schedule.leaves[to_size(leaf - range.begin)];
          arenas.at(to_size(step.arena)) = leaves[to_size(leaf)];
          for (const SumPlan::Add& merge : step.merges) {
            arenas.at(to_size(merge.into)) += arenas.at(to_size(merge.from));
          }
        }
        const std::vector<TreeNode> cover = canonical_cover(range, count);
        ASSERT_EQ(schedule.parts.size(), cover.size()) << count << " " << ranks << " " << rank;
        EXPECT_EQ(schedule.parts.front(), 0);
        for (std::size_t part = 0; part < cover.size(); ++part) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(arenas[to_size(schedule.parts[part])]),
                    std::bit_cast<std::uint32_t>(*testing_support::tree_sum(leaves, cover[part])))
              << count << " leaves, rank " << rank << " of " << ranks;
        }
      }
    }
  }
}

TEST(LeafSchedule, HoldsOneArenaMoreThanNodesArePending) {
  EXPECT_EQ(tree_schedule({.begin = 0, .end = 1}, 1).arenas, 1);
  EXPECT_EQ(tree_schedule({.begin = 0, .end = 4}, 8).arenas, 3);
  EXPECT_EQ(tree_schedule({.begin = 0, .end = 8}, 8).arenas, 4);
  EXPECT_EQ(tree_schedule({.begin = 0, .end = 64}, 64).arenas, 7);
}

TEST(LeafSchedule, AccumulatesInOneArena) {
  const LeafSchedule schedule = accumulate_schedule({.begin = 3, .end = 6});
  EXPECT_EQ(schedule.arenas, 1);
  ASSERT_EQ(schedule.leaves.size(), 3U);
  EXPECT_FALSE(schedule.leaves[0].add);
  EXPECT_TRUE(schedule.leaves[1].add);
  EXPECT_TRUE(schedule.leaves[2].add);
}

}  // namespace
}  // namespace lockstep
