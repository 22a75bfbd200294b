// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/two_level_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/shared_memory/elementwise.h"
#include "collectives/shared_memory/sum_program.h"
#include "collectives/two_level/split_plan.h"

namespace lockstep {
namespace {

// Below this an operation is a matter of latency, and one level has fewer messages in a row.
constexpr std::size_t kLargeBytes = std::size_t{16} << 10;
// Additions go block by block, so that sums of several stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

// Each rank of a host into its first, then each host into the first.
SumPlan host_first_plan(const std::vector<int>& host_of_rank) {
  SumPlan plan;
  plan.parts_of_rank.assign(host_of_rank.size(), 1);
  std::vector<int> first_of_host;
  std::vector<SumPlan::Add> between;
  for (std::size_t r = 0; r < host_of_rank.size(); ++r) {
    const int rank = static_cast<int>(r);
    const auto host = static_cast<std::size_t>(host_of_rank[r]);
    if (host < first_of_host.size()) {
      plan.adds.push_back({.into = first_of_host[host], .from = rank});
      continue;
    }
    first_of_host.push_back(rank);
    if (rank > 0) between.push_back({.into = 0, .from = rank});
  }
  plan.adds.insert(plan.adds.end(), between.begin(), between.end());
  return plan;
}

void add_up(const std::vector<SumPlan::Add>& adds, const std::vector<float*>& parts,
            std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t count = std::min(kBlock, end - at);
    for (const SumPlan::Add& add : adds) {
      shared_memory::combine(
          reinterpret_cast<std::byte*>(parts[static_cast<std::size_t>(add.into)] + at),
          reinterpret_cast<const std::byte*>(parts[static_cast<std::size_t>(add.from)] + at), count,
          DType::f32, ReduceOp::sum);
    }
  }
}

}  // namespace

TwoLevelBackend::TwoLevelBackend(TwoLevels levels)
    : levels_(std::move(levels)), host_first_(host_first_plan(levels_.host_of_rank)) {}

std::uint64_t TwoLevelBackend::bytes_moved() const noexcept {
  return levels_.all->bytes_moved() + levels_.host->bytes_moved() + levels_.across->bytes_moved();
}

Task TwoLevelBackend::allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) {
  return levels_.host->allocate(bytes, memory, wait);
}

Task TwoLevelBackend::reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                                   const SumPlan& plan, Wait& wait) {
  const int host = levels_.host_of_rank[static_cast<std::size_t>(rank())];
  const SplitPlan split = split_plan(plan, levels_.host_of_rank, host);

  shared_memory::SharedMemoryBackend::Shown shown;
  co_await levels_.host->show_parts(parts, out, count, {.detail = shared_memory::fingerprint(plan)},
                                    shown, wait);
  const shared_memory::SharedMemoryBackend::Slice slice = levels_.host->own_slice(count);
  add_up(split.own_adds, shown.parts, slice.begin, slice.end);

  std::vector<float*> given;
  for (const int part : split.given) {
    given.push_back(shown.parts[static_cast<std::size_t>(part)] + slice.begin);
  }
  const std::size_t size = slice.end - slice.begin;
  co_await levels_.across->reduce_parts(given, out + slice.begin, size, split.across, wait);

  for (float* const peer : shown.outs) {
    if (peer != out && size > 0) {
      std::memcpy(peer + slice.begin, out + slice.begin, size * sizeof(float));
    }
  }
  co_await levels_.host->barrier(wait);
}

Task TwoLevelBackend::all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                                 Wait& wait) {
  if (count * size_of(dtype) >= kLargeBytes && dtype == DType::f32 && op == ReduceOp::sum) {
    auto* const data = reinterpret_cast<float*>(inout);
    // All ranks go the same way.
    std::int64_t shared = levels_.host->shares(data, count) ? 1 : 0;
    co_await levels_.all->all_reduce(reinterpret_cast<std::byte*>(&shared), 1, DType::i64,
                                     ReduceOp::min, wait);
    if (shared != 0) {
      float* const part[] = {data};
      co_await reduce_parts(part, data, count, host_first_, wait);
      co_return;
    }
  }
  co_await levels_.all->all_reduce(inout, count, dtype, op, wait);
}

// All of the sum, on all ranks: a host's slices are not those of its ranks, so that less would
// travel only with another order of the levels.
Task TwoLevelBackend::reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                                     const SumPlan& plan, std::span<const std::size_t> /*edges*/,
                                     Wait& wait) {
  return reduce_parts(parts, out, count, plan, wait);
}

Task TwoLevelBackend::all_gather_slices(float* inout, std::size_t count,
                                        std::span<const std::size_t> edges, Wait& wait) {
  return levels_.all->all_gather_slices(inout, count, edges, wait);
}

Task TwoLevelBackend::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                                 Wait& wait) {
  return levels_.all->all_gather(in, out, bytes_each, wait);
}

Task TwoLevelBackend::broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  return levels_.all->broadcast(inout, bytes, root, wait);
}

Task TwoLevelBackend::barrier(Wait& wait) { return levels_.all->barrier(wait); }

}  // namespace lockstep
