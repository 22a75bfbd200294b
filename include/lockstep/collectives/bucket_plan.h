// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Elements in a block, the unit of the gradient arena: parameters start on blocks, and ZeRO slices
/// are whole blocks.
inline constexpr std::int64_t kBlockElements = 4096;
/// Blocks that `elements` need.
constexpr std::int64_t blocks_of(std::int64_t elements) noexcept {
  return (elements + kBlockElements - 1) / kBlockElements;
}

/// Where one parameter's gradient lies in the arena, in elements.
struct ArenaEntry {
  std::int64_t offset = 0;  // a multiple of kBlockElements
  std::int64_t size = 0;    // without the padding behind it
};

/// A contiguous piece of the arena that one collective reduces, in elements.
struct Bucket {
  std::int64_t offset = 0;           // a multiple of kBlockElements
  std::int64_t size = 0;             // whole blocks
  std::vector<std::size_t> members;  // parameter indices, as backward finishes them
};

struct BucketPlanOptions {
  // Small, so that the first reduction starts early in backward.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// How gradients lie in memory and in which order they are reduced.
struct BucketPlan {
  std::vector<ArenaEntry> entries;  // by parameter index
  std::vector<Bucket> buckets;      // in launch order
  std::int64_t arena_elements = 0;
};

/// Plans the arena and its buckets for parameters of `sizes` elements, given in forward order.
///
/// Backward finishes parameters in the opposite order, so the arena is laid out that way and the
/// bucket that is complete first comes first. A parameter is never split; the one that crosses a
/// bucket's limit still belongs to it, so a bucket may exceed its limit.
///
/// The plan depends on the arguments alone, not on the number of ranks: a run that resumes on
/// another number of ranks has the same arena, hence the same blocks in every sum.
///
/// Throws UsageError if `element_bytes` is zero or a size is negative. A parameter of no elements
/// gets an empty entry.
BucketPlan plan_buckets(std::span<const std::int64_t> sizes, std::size_t element_bytes,
                        BucketPlanOptions options = {});

/// Where the ranks' shares of each bucket begin and end, in elements from the bucket's beginning:
/// rank r has [edges[r], edges[r + 1]), whole blocks. Over all buckets the ranks' parameter
/// elements (without the padding of blocks) differ by two blocks at most, where buckets have that
/// many.
std::vector<std::vector<std::int64_t>> share_edges(const BucketPlan& plan, int ranks);

/// SHA-256 over everything in the plan, in hexadecimal: ranks compare it before the first step.
std::string hash_of(const BucketPlan& plan);

}  // namespace lockstep
