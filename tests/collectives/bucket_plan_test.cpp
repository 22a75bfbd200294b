// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/bucket_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kFloat = 4;

TEST(BucketPlan, LaysParametersOutInTheOrderBackwardFinishesThem) {
  const std::vector<std::int64_t> sizes = {10, 20, 30};
  const BucketPlan plan = plan_buckets(sizes, kFloat);
  ASSERT_EQ(plan.buckets.size(), 1U);
  EXPECT_EQ(plan.buckets[0].members, (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_LT(plan.entries[2].offset, plan.entries[1].offset);
}

TEST(BucketPlan, StartsEveryParameterOnABlock) {
  const std::vector<std::int64_t> sizes = {1, kBlockElements, kBlockElements + 1};
  const BucketPlan plan = plan_buckets(sizes, kFloat);
  for (const ArenaEntry& entry : plan.entries) EXPECT_EQ(entry.offset % kBlockElements, 0);
  EXPECT_EQ(plan.arena_elements, 4 * kBlockElements);
}

TEST(BucketPlan, ClosesTheFirstBucketEarlier) {
  const std::vector<std::int64_t> sizes(8, kBlockElements);
  const BucketPlan plan = plan_buckets(
      sizes, kFloat,
      {.first_bucket_bytes = kBlockElements * kFloat, .bucket_bytes = 4 * kBlockElements * kFloat});
  ASSERT_EQ(plan.buckets.size(), 3U);
  EXPECT_EQ(plan.buckets[0].members.size(), 1U);
  EXPECT_EQ(plan.buckets[1].members.size(), 4U);
  EXPECT_EQ(plan.buckets[2].members.size(), 3U);
}

TEST(BucketPlan, CoversTheArenaWithoutGapsOrOverlap) {
  const std::vector<std::int64_t> sizes = {5000, 1, 0, 123456, 7, 999999};
  const BucketPlan plan = plan_buckets(sizes, kFloat);
  std::int64_t end = 0;
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.offset, end);
    end += bucket.size;
  }
  EXPECT_EQ(end, plan.arena_elements);
}

TEST(BucketPlan, SharesABucketInWholeBlocks) {
  const Bucket bucket = {.offset = 2 * kBlockElements, .size = 7 * kBlockElements, .members = {}};
  const auto edges = share_edges(bucket, 3);
  ASSERT_EQ(edges.size(), 4U);
  const std::int64_t blocks[] = {0, 2, 4, 7};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(edges[i], blocks[i] * kBlockElements);
  // More ranks than blocks: some have none.
  const auto many = share_edges({.offset = 0, .size = kBlockElements, .members = {}}, 4);
  EXPECT_EQ(many.front(), 0);
  EXPECT_EQ(many[3], 0);
  EXPECT_EQ(many.back(), kBlockElements);
}

TEST(BucketPlan, NamesTheParameterWithANegativeSize) {
  const std::vector<std::int64_t> sizes = {1, -2};
  try {
    plan_buckets(sizes, kFloat);
    FAIL() << "a negative size was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("parameter 1 has -2"), std::string::npos);
  }
}

TEST(BucketPlan, HashesEverythingThatRanksMustShare) {
  const std::vector<std::int64_t> sizes = {10, 20, 30};
  const std::vector<std::int64_t> swapped = {20, 10, 30};
  const BucketPlanOptions small{.first_bucket_bytes = 4, .bucket_bytes = 4};
  EXPECT_EQ(hash_of(plan_buckets(sizes, kFloat)), hash_of(plan_buckets(sizes, kFloat)));
  EXPECT_NE(hash_of(plan_buckets(sizes, kFloat)), hash_of(plan_buckets(swapped, kFloat)));
  EXPECT_NE(hash_of(plan_buckets(sizes, kFloat)), hash_of(plan_buckets(sizes, kFloat, small)));
}

}  // namespace
}  // namespace lockstep
