// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/split_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "collectives/two_level/host_layout.h"

namespace lockstep {
namespace {

std::size_t to_size(int number) { return static_cast<std::size_t>(number); }

// Additions written down, so that equal texts mean equal additions in an equal order.
void carry_out(const std::vector<SumPlan::Add>& adds, std::vector<std::string>& parts) {
  for (const SumPlan::Add& add : adds) {
    std::string& into = parts[to_size(add.into)];
    into = "(" + into + "+" + parts[to_size(add.from)] + ")";
  }
}

std::string whole(const SumPlan& plan) {
  const int all = std::accumulate(plan.parts_of_rank.begin(), plan.parts_of_rank.end(), 0);
  std::vector<std::string> parts;
  for (int part = 0; part < all; ++part) parts.push_back(std::to_string(part));
  carry_out(plan.adds, parts);
  return parts[to_size(plan.result)];
}

// As whole(), but host by host and then across; `given` = parts that go over the network.
std::string in_two_levels(const SumPlan& plan, const std::vector<int>& host_of_rank, int& given) {
  std::map<int, std::vector<std::string>> of_host;
  int part = 0;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    for (int i = 0; i < plan.parts_of_rank[rank]; ++i) {
      of_host[host_of_rank[rank]].push_back(std::to_string(part++));
    }
  }
  std::vector<std::string> across;
  SplitPlan split;
  for (auto& [host, parts] : of_host) {
    split = split_plan(plan, host_of_rank, host);
    carry_out(split.own_adds, parts);
    EXPECT_EQ(split.across.parts_of_rank[to_size(host)], static_cast<int>(split.given.size()));
    for (const int number : split.given) across.push_back(parts[to_size(number)]);
  }
  given = static_cast<int>(across.size());
  carry_out(split.across.adds, across);
  return across[to_size(split.across.result)];
}

TEST(SplitPlan, MakesTheSameAdditionsForEveryPlanAndPlacement) {
  const std::vector<std::vector<int>> placements = {
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}, {0, 0, 1, 1, 2, 2, 3, 3}};
  for (const auto& placement : placements) {
    const int ranks = static_cast<int>(placement.size());
    std::vector<SumPlan> plans = {ordered_plan(ranks)};
    for (std::int64_t leaves = ranks; leaves < 40; ++leaves) {
      plans.push_back(invariant_plan(ranks, leaves));
    }
    for (const SumPlan& plan : plans) {
      int given = 0;
      EXPECT_EQ(in_two_levels(plan, placement, given), whole(plan));
    }
  }
}

TEST(SplitPlan, SendsOnePartAHostWhereRanksAreNeighboursAndLeavesDivide) {
  int given = 0;
  in_two_levels(invariant_plan(4, 8), {0, 0, 1, 1}, given);
  EXPECT_EQ(given, 2);
  in_two_levels(invariant_plan(8, 64), {0, 0, 0, 0, 1, 1, 1, 1}, given);
  EXPECT_EQ(given, 2);
  // In rank order only the first host can begin.
  in_two_levels(ordered_plan(4), {0, 0, 1, 1}, given);
  EXPECT_EQ(given, 3);
}

TEST(HostLayout, FindsTheRanksWithTheSamePlaceOnEveryHost) {
  const std::vector<std::string> keys = {"a", "b", "a", "b", "c"};
  const HostLayout layout = host_layout({0, 1, 2, 3}, keys);
  EXPECT_EQ(layout.host_of_rank, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_TRUE(layout.two_levels());
  EXPECT_EQ(layout.across(), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_FALSE(host_layout({0, 2}, keys).two_levels()) << "one host";
  EXPECT_FALSE(host_layout({0, 1, 4}, keys).two_levels()) << "one rank a host";
  EXPECT_FALSE(host_layout({0, 1, 2, 3, 4}, keys).two_levels()) << "uneven";
}

TEST(SplitPlan, SendsWholeSumsOfAHostAndRoundedParts) {
  SumPlan plan = ordered_plan(4);
  plan.parts_type = plan.sum_type = DType::bf16;
  const SumPlan apart = split_plan(plan, {0, 1, 2, 3}, 0).across;
  EXPECT_EQ(apart.parts_type, DType::bf16);
  EXPECT_EQ(apart.sum_type, DType::bf16);
  const SumPlan together = split_plan(plan, {0, 0, 1, 1}, 1).across;
  EXPECT_EQ(together.parts_type, DType::f32) << "the first host gives a sum";
  EXPECT_EQ(together.sum_type, DType::bf16);
}

}  // namespace
}  // namespace lockstep
