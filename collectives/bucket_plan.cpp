// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/bucket_plan.h"

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

std::vector<std::int64_t> share_edges(const Bucket& bucket, int ranks) {
  std::vector<std::int64_t> edges;
  const std::int64_t blocks = blocks_of(bucket.size);
  for (std::int64_t rank = 0; rank <= ranks; ++rank) {
    edges.push_back(blocks * rank / ranks * kBlockElements);
  }
  return edges;
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
