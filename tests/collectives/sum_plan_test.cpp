// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/sum_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>

#include "lockstep/core/error.h"
#include "tests/support/tree_sum.h"

namespace lockstep {
namespace {

using testing_support::tree_sum;
using Cover = std::vector<std::pair<int, std::int64_t>>;  // (level, index)

std::vector<float> floats(const std::vector<std::uint32_t>& bits) {
  std::vector<float> values;
  for (const std::uint32_t word : bits) values.push_back(std::bit_cast<float>(word));
  return values;
}

// Magnitudes over twelve decades, so that any other order of additions shows.
std::vector<float> wild_leaves(std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> decade(-6, 5);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(normal(random) * std::pow(10.0, decade(random))));
  }
  return values;
}

float run_plan(const SumPlan& plan, std::vector<float> parts) {
  for (const SumPlan::Add& add : plan.adds) {
    parts[static_cast<std::size_t>(add.into)] += parts[static_cast<std::size_t>(add.from)];
  }
  return parts[static_cast<std::size_t>(plan.result)];
}

float invariant_sum(const std::vector<float>& leaves, int ranks) {
  const auto count = static_cast<std::int64_t>(leaves.size());
  std::vector<float> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const TreeNode& node : canonical_cover(owned_leaves(rank, ranks, count), count)) {
      parts.push_back(*tree_sum(leaves, node));
    }
  }
  return run_plan(invariant_plan(ranks, count), parts);
}

std::vector<Cover> covers(int ranks, std::int64_t leaves) {
  std::vector<Cover> all;
  for (int rank = 0; rank < ranks; ++rank) {
    Cover cover;
    for (const TreeNode& node : canonical_cover(owned_leaves(rank, ranks, leaves), leaves)) {
      cover.emplace_back(node.level, node.index);
    }
    all.push_back(cover);
  }
  return all;
}

TEST(SumPlan, GivesEveryLeafToOneRankInOrder) {
  for (std::int64_t leaves = 1; leaves <= 20; ++leaves) {
    for (std::int64_t ranks = 1; ranks <= leaves; ++ranks) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const LeafRange range = owned_leaves(rank, ranks, leaves);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 1);
        next = range.end;
      }
      EXPECT_EQ(next, leaves);
    }
  }
}

// The vectors that reference/invariant.py prints.
TEST(SumPlan, CoversEightLeavesAsTheReferenceDoes) {
  EXPECT_EQ(covers(1, 8), (std::vector<Cover>{{{3, 0}}}));
  EXPECT_EQ(covers(2, 8), (std::vector<Cover>{{{2, 0}}, {{2, 1}}}));
  EXPECT_EQ(covers(3, 8), (std::vector<Cover>{{{1, 0}}, {{1, 1}, {0, 4}}, {{0, 5}, {1, 3}}}));
  EXPECT_EQ(covers(4, 8), (std::vector<Cover>{{{1, 0}}, {{1, 1}}, {{1, 2}}, {{1, 3}}}));
  EXPECT_EQ(covers(8, 8),
            (std::vector<Cover>{
                {{0, 0}}, {{0, 1}}, {{0, 2}}, {{0, 3}}, {{0, 4}}, {{0, 5}}, {{0, 6}}, {{0, 7}}}));
}

TEST(SumPlan, CoversTwelveLeavesAsTheReferenceDoes) {
  EXPECT_EQ(covers(1, 12), (std::vector<Cover>{{{4, 0}}}));
  EXPECT_EQ(covers(2, 12), (std::vector<Cover>{{{2, 0}, {1, 2}}, {{1, 3}, {2, 2}}}));
  EXPECT_EQ(covers(3, 12), (std::vector<Cover>{{{2, 0}}, {{2, 1}}, {{2, 2}}}));
  EXPECT_EQ(
      covers(4, 12),
      (std::vector<Cover>{{{1, 0}, {0, 2}}, {{0, 3}, {1, 2}}, {{1, 3}, {0, 8}}, {{0, 9}, {1, 5}}}));
  EXPECT_EQ(covers(6, 12),
            (std::vector<Cover>{{{1, 0}}, {{1, 1}}, {{1, 2}}, {{1, 3}}, {{1, 4}}, {{1, 5}}}));
}

TEST(SumPlan, CoversFiveLeavesAsTheReferenceDoes) {
  EXPECT_EQ(covers(2, 5), (std::vector<Cover>{{{1, 0}}, {{1, 1}, {0, 4}}}));
  EXPECT_EQ(covers(3, 5), (std::vector<Cover>{{{0, 0}}, {{0, 1}, {0, 2}}, {{0, 3}, {0, 4}}}));
}

struct Vector {
  std::vector<std::uint32_t> leaves;
  std::uint32_t tree;
  std::uint32_t left_to_right;
};

TEST(SumPlan, MakesTheBitsOfTheReferenceOnEveryRankCount) {
  const std::vector<Vector> vectors = {
      {{0x3c23d70a, 0xbde147af, 0x3f99999a, 0xc1500000, 0x3c656041, 0xbe19999a, 0x3fcccccd,
        0xc1880000},
       0xc1db7cee,
       0xc1db7ced},
      {{0x3c23d70a, 0xbde147af, 0x3f99999a, 0xc1500000, 0x3c656041, 0xbe19999a, 0x3fcccccd,
        0xc1880000, 0x3c9374bc, 0xbe428f5c, 0x40000000, 0xc1a80000},
       0xc23a6e98,
       0xc23a6e98},
      {{0x3c23d70a, 0xbde147af, 0x3f99999a, 0xc1500000, 0x3c656041}, 0xc13e2d0f, 0xc13e2d0e}};
  for (const Vector& vector : vectors) {
    const std::vector<float> leaves = floats(vector.leaves);
    const int count = static_cast<int>(leaves.size());
    for (int ranks = 1; ranks <= count; ++ranks) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(invariant_sum(leaves, ranks)), vector.tree)
          << count << " leaves on " << ranks << " ranks";
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(run_plan(ordered_plan(count), leaves)),
              vector.left_to_right);
  }
}

TEST(SumPlan, HasTheBitsOfTheWholeTreeForEveryLeafAndRankCount) {
  for (std::int64_t count = 1; count <= 40; ++count) {
    const std::vector<float> leaves = wild_leaves(count);
    const auto want = std::bit_cast<std::uint32_t>(tree_sum(leaves));
    for (int ranks = 1; ranks <= count; ++ranks) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(invariant_sum(leaves, ranks)), want)
          << count << " leaves on " << ranks << " ranks";
    }
  }
}

TEST(SumPlan, RefusesMoreRanksThanLeaves) {
  try {
    invariant_plan(5, 4);
    FAIL() << "5 ranks for 4 leaves were accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("5 data-parallel ranks for 4 leaves"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
