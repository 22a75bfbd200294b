// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/bucket_plan.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {
BucketPlan plan_buckets(std::span<const std::int64_t> sizes, std::size_t element_bytes,
                        BucketPlanOptions options) {
  if (element_bytes == 0) {
    throw UsageError("plan_buckets: element_bytes is 0",
                     "pass the size of the gradient's element type");
  }
  BucketPlan plan;
  plan.entries.resize(sizes.size());
  Bucket open;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] < 0) {
      throw UsageError("plan_buckets: parameter " + std::to_string(i) + " has " +
                           std::to_string(sizes[i]) + " elements",
                       "sizes count elements and cannot be negative");
    }
    plan.entries[i] = {.offset = plan.arena_elements, .size = sizes[i]};
    plan.arena_elements += blocks_of(sizes[i]) * kBlockElements;
    open.members.push_back(i);
    open.size = plan.arena_elements - open.offset;

    const std::size_t limit =
        plan.buckets.empty() ? options.first_bucket_bytes : options.bucket_bytes;
    if (static_cast<std::size_t>(open.size) * element_bytes >= limit) {
      plan.buckets.push_back(std::move(open));
      open = {.offset = plan.arena_elements, .size = 0, .members = {}};
    }
  }
  if (!open.members.empty()) plan.buckets.push_back(std::move(open));
  return plan;
}

std::vector<std::vector<std::int64_t>> share_edges(const BucketPlan& plan, int ranks) {
  // By how much the ranks before an edge have too many elements so far, times `ranks`: what one
  // bucket cannot divide evenly the next ones make good.
  std::vector<std::int64_t> surplus(static_cast<std::size_t>(ranks) + 1);
  std::vector<std::vector<std::int64_t>> all;
  for (const Bucket& bucket : plan.buckets) {
    std::vector<std::int64_t> before{0};  // elements of the bucket before each of its blocks
    for (const std::size_t member : bucket.members) {
      for (std::int64_t left = plan.entries[member].size; left > 0; left -= kBlockElements) {
        before.push_back(before.back() + std::min(left, kBlockElements));
      }
    }
    const auto blocks = before.size() - 1;
    std::vector<std::int64_t>& edges = all.emplace_back(1, 0);
    std::size_t edge = 0;
    for (std::int64_t rank = 1; rank < ranks; ++rank) {
      std::int64_t& so_far = surplus[static_cast<std::size_t>(rank)];
      const auto surplus_at = [&](std::size_t at) {
        return so_far + before[at] * ranks - before.back() * rank;
      };
      while (edge < blocks && std::abs(surplus_at(edge + 1)) < std::abs(surplus_at(edge))) ++edge;
      so_far = surplus_at(edge);
      edges.push_back(static_cast<std::int64_t>(edge) * kBlockElements);
    }
    edges.push_back(bucket.size);
  }
  return all;
}

std::string hash_of(const BucketPlan& plan) {
  // Every list is preceded by its length, so that two plans cannot spell the same text.
  std::string text = "arena " + std::to_string(plan.arena_elements);
  text += " entries " + std::to_string(plan.entries.size());
  for (const ArenaEntry& entry : plan.entries) {
    text += ' ' + std::to_string(entry.offset) + '+' + std::to_string(entry.size);
  }
  text += " buckets " + std::to_string(plan.buckets.size());
  for (const Bucket& bucket : plan.buckets) {
    text += ' ' + std::to_string(bucket.offset) + '+' + std::to_string(bucket.size);
    text += " members " + std::to_string(bucket.members.size());
    for (const std::size_t member : bucket.members) text += ' ' + std::to_string(member);
  }
  return to_hex(sha256(text));
}

}  // namespace lockstep
