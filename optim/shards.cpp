// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/shards.h"

#include <algorithm>
#include <utility>

#include "core/kernels.h"

namespace lockstep::optim {
namespace {

// The stream goes on when the operation is done.
void await(Stream& stream, const Work& work) {
  if (stream.device().kind == DeviceKind::cpu) {
    stream.enqueue([work] { work.wait(); });
  } else {
    work.wait();  // a task that waited would hold up all others of the device's driver
  }
}

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

Shards::Shards(Communicator& data, const Parameters& parameters, const BucketPlan& plan)
    : data_(data),
      parameters_(parameters),
      plan_(plan),
      edges_(share_edges(plan, data.size())),
      arrivals_(plan.buckets.size()) {
  const auto rank = to_size(data.rank());
  std::vector<std::int64_t> blocks(to_size(data.size()));  // by rank
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    const Bucket& bucket = plan_.buckets[i];
    const std::vector<std::int64_t>& edges = edges_[i];
    own_.push_back({.begin = bucket.offset + edges[rank], .end = bucket.offset + edges[rank + 1]});
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      blocks[r] += blocks_of(edges[r + 1] - edges[r]);
    }
  }
  // Ranks have different numbers of blocks, but give the same.
  const std::int64_t most = *std::max_element(blocks.begin(), blocks.end());
  given_ = Tensor::zeros(Device{}, {most}, DType::f64);
  gathered_ = Tensor::zeros(Device{}, {data.size(), most}, DType::f64);
}

Shards::~Shards() {
  for (Parameter* parameter : parameters_) parameter->await_value({});
}

ParameterSlices Shards::slices() const {
  std::vector<std::vector<std::int64_t>> edges_of(parameters_.size());
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (const std::size_t member : plan_.buckets[bucket].members) {
      const ArenaEntry& entry = plan_.entries[member];
      edges_of[member] = edges_[bucket];
      for (std::int64_t& edge : edges_of[member]) {
        edge = std::clamp<std::int64_t>(plan_.buckets[bucket].offset + edge - entry.offset, 0,
                                        entry.size);
      }
    }
  }
  std::vector<ParameterSlice> slices;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    slices.emplace_back(*parameters_[i], std::move(edges_of[i]), data_.rank());
  }
  return ParameterSlices(std::move(slices));
}

template <typename Visit>
void Shards::each_block(int rank, const Visit& visit) const {
  std::int64_t at = rank * given_.size();
  for (std::size_t bucket = 0; bucket < edges_.size(); ++bucket) {
    const std::int64_t first = blocks_of(plan_.buckets[bucket].offset);
    const std::int64_t end = first + blocks_of(edges_[bucket][to_size(rank) + 1]);
    for (std::int64_t block = first + blocks_of(edges_[bucket][to_size(rank)]); block < end;
         ++block) {
      visit(at++, to_size(block));
    }
  }
}

void Shards::gather(Stream& compute, std::span<double> by_block) {
  if (data_.size() == 1) return;
  compute.enqueue([this, by_block] {
    const std::int64_t before = data_.rank() * given_.size();
    each_block(data_.rank(), [&](std::int64_t at, std::size_t block) {
      given_.as<double>()[at - before] = by_block[block];
    });
  });
  await(compute, data_.host().all_gather(given_, gathered_, compute.record()));
  compute.enqueue([this, by_block] {
    for (int rank = 0; rank < data_.size(); ++rank) {
      each_block(rank, [&](std::int64_t at, std::size_t block) {
        by_block[block] = gathered_.as<double>()[at];
      });
    }
  });
}

void Shards::gather_weights(Stream& compute, const Tensor& arena) {
  if (data_.size() == 1) return;
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
      kernels::convert(compute, value.rows(begin - entry.offset, end - entry.offset),
                       arena.rows(begin, end));
    }
    arrivals_[bucket] = {
        .work = data_.all_gather_slices(arena.rows(where.offset, where.offset + where.size),
                                        edges_[bucket], compute.record()),
        .compute = &compute,
        .arena = arena};
  }
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    for (const std::size_t member : plan_.buckets[bucket].members) {
      parameters_[member]->await_value([this, bucket] { settle(bucket); });
    }
  }
}

void Shards::settle() {
  for (std::size_t bucket = plan_.buckets.size(); bucket-- > 0;) settle(bucket);
}

void Shards::settle(std::size_t bucket) {
  if (!arrivals_[bucket]) return;
  const Arrival arrival = *std::exchange(arrivals_[bucket], std::nullopt);
  for (const std::size_t member : plan_.buckets[bucket].members) {
    parameters_[member]->await_value({});
  }
  await(*arrival.compute, arrival.work);
  const Share share = own_[bucket];
  for (const std::size_t member : plan_.buckets[bucket].members) {
    const ArenaEntry& entry = plan_.entries[member];
    const Tensor value = parameters_[member]->value().reshape({entry.size});
    const auto take = [&](std::int64_t begin, std::int64_t end) {
      if (begin >= end) return;
      kernels::convert(*arrival.compute, arrival.arena.rows(begin, end),
                       value.rows(begin - entry.offset, end - entry.offset));
    };
    const std::int64_t end = entry.offset + entry.size;
    take(entry.offset, std::min(share.begin, end));
    take(std::max(share.end, entry.offset), end);
  }
}

}  // namespace lockstep::optim
