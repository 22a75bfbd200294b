// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/sum_program.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::shared_memory {
namespace {

// Parts of `count` elements each, filled so that any other order of additions shows.
std::vector<std::vector<float>> make_parts(std::size_t parts, std::size_t count) {
  std::vector<std::vector<float>> all(parts, std::vector<float>(count));
  for (std::size_t p = 0; p < parts; ++p) {
    for (std::size_t i = 0; i < count; ++i) {
      all[p][i] = (p % 2 == 0 ? 1.0F : -3.0F) * static_cast<float>(i % 977 + 1) *
                  (p % 3 == 0 ? 1e-3F : 1e4F);
    }
  }
  return all;
}

std::vector<float> expected(const SumPlan& plan, std::vector<std::vector<float>> parts) {
  for (const SumPlan::Add& add : plan.adds) {
    auto& into = parts[static_cast<std::size_t>(add.into)];
    const auto& from = parts[static_cast<std::size_t>(add.from)];
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += from[i];
  }
  return parts[static_cast<std::size_t>(plan.result)];
}

void check(const SumPlan& plan, std::size_t count, std::size_t begin, std::size_t end, Walk walk) {
  const auto total = static_cast<std::size_t>(
      std::accumulate(plan.parts_of_rank.begin(), plan.parts_of_rank.end(), 0));
  std::vector<std::vector<float>> parts = make_parts(total, count);
  const std::vector<float> want = expected(plan, parts);
  // Each rank's first part is its output, as in the reducer.
  std::vector<float*> outs;
  std::size_t part = 0;
  for (const int own : plan.parts_of_rank) {
    outs.push_back(parts[part].data());
    part += static_cast<std::size_t>(own);
  }
  const std::vector<std::vector<float>> before = parts;
  std::vector<const float*> in;
  for (const auto& values : parts) in.push_back(values.data());
  run_sum(plan, in, outs, begin, end, walk);
  part = 0;
  for (const int own : plan.parts_of_rank) {
    for (std::size_t i = 0; i < count; ++i) {
      const float value = i >= begin && i < end ? want[i] : before[part][i];
      ASSERT_EQ(parts[part][i], value) << "part " << part << " element " << i;
    }
    part += static_cast<std::size_t>(own);
  }
}

void check(const SumPlan& plan, std::size_t count, std::size_t begin, std::size_t end) {
  for (const Lines lines : {Lines::as_they_come, Lines::fetched_ahead}) {
    for (const Direction direction : {Direction::upward, Direction::downward}) {
      check(plan, count, begin, end, {.lines = lines, .direction = direction});
    }
  }
}

TEST(SumProgram, StoresTheSumOfItsElementsToEveryOutputAndTouchesNoOther) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    check(ordered_plan(ranks), 5000, 16, 4999);
    check(invariant_plan(ranks, 12), 5000, 1024, 3077);
    check(invariant_plan(ranks, 5), 33, 0, 33);
  }
}

TEST(SumProgram, DoesNothingForAnEmptyRange) { check(ordered_plan(2), 10, 5, 5); }

TEST(SumProgram, CopiesAResultThatNeedsNoAddition) {
  SumPlan plan{.parts_of_rank = {1, 1}, .adds = {}, .result = 1};
  check(plan, 2000, 0, 2000);
}

TEST(SumProgram, TellsPlansApart) {
  EXPECT_EQ(fingerprint(invariant_plan(3, 8)), fingerprint(invariant_plan(3, 8)));
  EXPECT_NE(fingerprint(invariant_plan(3, 8)), fingerprint(invariant_plan(3, 9)));
  EXPECT_NE(fingerprint(ordered_plan(4)), fingerprint(invariant_plan(4, 4)));
}

}  // namespace
}  // namespace lockstep::shared_memory
