// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/shards.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/kernels.h"

namespace lockstep::optim {
namespace {

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

Shards::Shards(Communicator& data, const Parameters& parameters, const BucketPlan& plan)
    : data_(data), parameters_(parameters), plan_(plan) {
  const auto rank = to_size(data.rank());
  for (const Bucket& bucket : plan_.buckets) {
    edges_.push_back(share_edges(bucket, data.size()));
    own_.push_back({.begin = edges_.back()[rank], .end = edges_.back()[rank + 1]});
  }
}

ParameterSlices Shards::slices() const {
  std::vector<std::optional<ParameterSlice>> found(parameters_.size());
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (const std::size_t member : plan_.buckets[bucket].members) {
      const ArenaEntry& entry = plan_.entries[member];
      std::vector<std::int64_t> edges;
      edges.reserve(edges_[bucket].size());
      for (const std::int64_t edge : edges_[bucket]) {
        edges.push_back(std::clamp<std::int64_t>(edge - entry.offset, 0, entry.size));
      }
      found[member].emplace(*parameters_[member], std::move(edges), data_.rank());
    }
  }
  std::vector<ParameterSlice> slices;
  for (auto& slice : found) slices.push_back(std::move(slice.value()));
  return ParameterSlices(std::move(slices));
}

void Shards::gather(std::span<double> by_block) const {
  if (data_.size() == 1) return;
  // Ranks have different numbers of blocks, but give the same.
  std::int64_t most = 0;
  for (int rank = 0; rank < data_.size(); ++rank) {
    std::int64_t blocks = 0;
    for (const auto& edges : edges_) {
      blocks += (edges[to_size(rank) + 1] - edges[to_size(rank)]) / kBlockElements;
    }
    most = std::max(most, blocks);
  }
  const Tensor mine = Tensor::zeros(Device{}, {most}, DType::f64);
  const Tensor all(Device{}, {most * data_.size()}, DType::f64);
  const auto each_block = [&](int rank, const auto& visit) {
    std::int64_t at = 0;
    for (const auto& edges : edges_) {
      const std::int64_t end = edges[to_size(rank) + 1] / kBlockElements;
      for (std::int64_t block = edges[to_size(rank)] / kBlockElements; block < end; ++block) {
        visit(at++, by_block[to_size(block)]);
      }
    }
  };
  each_block(data_.rank(), [&](std::int64_t at, double value) { mine.as<double>()[at] = value; });
  data_.all_gather(mine, all).wait();
  for (int rank = 0; rank < data_.size(); ++rank) {
    const double* theirs = all.as<double>() + rank * most;
    each_block(rank, [&](std::int64_t at, double& value) { value = theirs[at]; });
  }
}

void Shards::gather_weights(Stream& compute, const Tensor& arena) const {
  if (data_.size() == 1) return;
  std::vector<Work> gathered;
  // The next forward pass needs the last bucket first.
  for (std::size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    const Bucket& where = plan_.buckets[bucket];
    const Share share = own_[bucket];
    for (const std::size_t member : where.members) {
      const ArenaEntry& entry = plan_.entries[member];
      const std::int64_t begin = std::max(share.begin, entry.offset);
      const std::int64_t end = std::min(share.end, entry.offset + entry.size);
      if (begin >= end) continue;
      const Tensor value = parameters_[member]->value().reshape({entry.size});
      kernels::copy(compute, value.rows(begin - entry.offset, end - entry.offset),
                    arena.rows(begin, end));
    }
    std::vector<std::int64_t> edges = edges_[bucket];
    for (std::int64_t& edge : edges) edge -= where.offset;
    gathered.push_back(data_.all_gather_slices(arena.rows(where.offset, where.offset + where.size),
                                               edges, compute.record()));
  }
  for (std::size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    const Work work = gathered[plan_.buckets.size() - 1 - bucket];
    compute.enqueue([work] { work.wait(); });
    const Share share = own_[bucket];
    for (const std::size_t member : plan_.buckets[bucket].members) {
      const ArenaEntry& entry = plan_.entries[member];
      const Tensor value = parameters_[member]->value().reshape({entry.size});
      const auto take = [&](std::int64_t begin, std::int64_t end) {
        if (begin >= end) return;
        kernels::copy(compute, arena.rows(begin, end),
                      value.rows(begin - entry.offset, end - entry.offset));
      };
      const std::int64_t end = entry.offset + entry.size;
      take(entry.offset, std::min(share.begin, end));
      take(std::max(share.end, entry.offset), end);
    }
  }
}

}  // namespace lockstep::optim
