// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
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
  const std::vector<std::int64_t> sizes = {7 * kBlockElements};
  const auto edges = share_edges(plan_buckets(sizes, kFloat), 3);
  ASSERT_EQ(edges.size(), 1U);
  const std::int64_t blocks[] = {0, 2, 5, 7};
  ASSERT_EQ(edges[0].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(edges[0][i], blocks[i] * kBlockElements);
}

TEST(BucketPlan, SharesFewerBlocksThanRanks) {
  const std::vector<std::int64_t> sizes = {5};
  const auto edges = share_edges(plan_buckets(sizes, kFloat), 4);
  EXPECT_TRUE(std::is_sorted(edges[0].begin(), edges[0].end()));
  EXPECT_EQ(edges[0].front(), 0);
  EXPECT_EQ(edges[0].back(), kBlockElements);
}

// Blocks of biases are nearly empty, and no bucket divides evenly: the ranks' elements do.
TEST(BucketPlan, SharesElementsEvenlyOverAllBuckets) {
  std::vector<std::int64_t> sizes;
  for (int layer = 0; layer < 30; ++layer) {
    for (const std::int64_t size : {256, 256, 65'536, 256, 4096, 3000, 0, 70'001}) {
      sizes.push_back(size);
    }
  }
  const BucketPlan plan =
      plan_buckets(sizes, kFloat, {.first_bucket_bytes = 100'000, .bucket_bytes = 300'000});
  EXPECT_GT(plan.buckets.size(), 10U);
  std::int64_t all = 0;
  for (const std::int64_t size : sizes) all += size;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto edges = share_edges(plan, ranks);
    ASSERT_EQ(edges.size(), plan.buckets.size());
    std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
    for (std::size_t bucket = 0; bucket < edges.size(); ++bucket) {
      ASSERT_EQ(edges[bucket].size(), elements.size() + 1);
      EXPECT_EQ(edges[bucket].front(), 0);
      EXPECT_EQ(edges[bucket].back(), plan.buckets[bucket].size);
      for (std::size_t rank = 0; rank < elements.size(); ++rank) {
        const std::int64_t begin = plan.buckets[bucket].offset + edges[bucket][rank];
        const std::int64_t end = plan.buckets[bucket].offset + edges[bucket][rank + 1];
        ASSERT_LE(begin, end);
        EXPECT_EQ(begin % kBlockElements, 0);
        for (const ArenaEntry& entry : plan.entries) {
          elements[rank] += std::max<std::int64_t>(
              0, std::min(end, entry.offset + entry.size) - std::max(begin, entry.offset));
        }
      }
    }
    for (const std::int64_t each : elements) {
      EXPECT_LE(std::abs(each * ranks - all), kBlockElements * ranks) << ranks << " ranks";
    }
  }
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
