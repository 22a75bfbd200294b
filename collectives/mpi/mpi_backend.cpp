// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/mpi_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "core/kernels.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSliceElements = 16;  // slices begin on cache lines of f32
// Pieces bound the scratch memory and let one piece travel while the next is added.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
// Below this each rank sends all it has to all: one exchange where slices need two.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

// All ranks' parts of `count` elements become one, on all ranks.
struct MpiBackend::Reduction {
  std::vector<const std::byte*> own;  // this rank's parts
  std::byte* out = nullptr;
  std::size_t count = 0;
  std::size_t width = 0;              // bytes an element
  DType parts_type = DType::f32;      // as parts travel, if they are f32
  DType sum_type = DType::f32;        // as their sum does
  std::vector<std::size_t> parts_of;  // by rank
  std::vector<std::size_t> first_of;  // number of a rank's first part
  Combine combine;
  std::vector<std::size_t> edges;  // rank r adds up elements [edges[r], edges[r + 1])
  bool spreads = true;             // to all, or each rank keeps its slice

  bool narrows_parts() const { return parts_type != DType::f32; }
  bool narrows_sum() const { return sum_type != DType::f32; }
  std::size_t part_width() const { return narrows_parts() ? size_of(parts_type) : width; }

  std::size_t parts() const { return first_of.back() + parts_of.back(); }

  // Slices are cut into pieces that follow each other.
  std::size_t piece_size() const { return kPieceBytes / width / parts_of.size(); }
  std::size_t pieces() const {
    std::size_t longest = 0;
    for (std::size_t r = 0; r < parts_of.size(); ++r) {
      longest = std::max(longest, edges[r + 1] - edges[r]);
    }
    return (longest + piece_size() - 1) / piece_size();
  }
  Slice slice_of(int rank, std::size_t piece) const {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t begin = std::min(edges[r] + piece * piece_size(), edges[r + 1]);
    return {.begin = begin, .size = std::min(piece_size(), edges[r + 1] - begin)};
  }
};

MpiBackend::MpiBackend(std::shared_ptr<MpiState> state, const std::vector<int>& ranks, int rank,
                       int tag, Lane lane)
    : rank_(rank),
      size_(static_cast<int>(ranks.size())),
      transfers_(std::move(state), ranks, tag, lane) {}

// Not collective here: what others have is of no use to this rank.
Task MpiBackend::allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& /*wait*/) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, size);
  memory = {data, [](std::byte* owned) { std::free(owned); }};
  co_return;
}

void MpiBackend::send(int peer, const std::byte* data, std::size_t bytes) {
  count_moved(bytes);
  transfers_.send(peer, data, bytes);
}

std::vector<std::size_t> MpiBackend::even_edges(std::size_t count) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t each = round_up((count + ranks - 1) / ranks, kSliceElements);
  std::vector<std::size_t> edges;
  for (std::size_t rank = 0; rank <= ranks; ++rank) edges.push_back(std::min(each * rank, count));
  return edges;
}

const std::byte* MpiBackend::narrowed(const std::byte* data, std::size_t count, DType type,
                                      std::vector<std::byte>& memory, std::size_t& used) {
  std::byte* const to = memory.data() + used;
  kernels::convert_elements(data, DType::f32, to, type, count);
  used += count * size_of(type);
  return to;
}

void MpiBackend::exchange_slices(const Reduction& job, std::size_t piece) {
  const Slice mine = job.slice_of(rank_, piece);
  const std::size_t part_bytes = mine.size * job.part_width();
  scratch_.resize(std::max(scratch_.size(), job.parts() * part_bytes));
  std::size_t used = 0;
  if (job.narrows_parts()) {
    std::size_t elements = 0;
    for (int rank = 0; rank < size_; ++rank) elements += job.slice_of(rank, piece).size;
    outgoing_.resize(std::max(outgoing_.size(), elements * job.own.size() * job.part_width()));
  }
  for (int step = 1; step < size_; ++step) {
    // Each rank begins with another peer, so that no one is everybody's first.
    const int to = (rank_ + step) % size_;
    const Slice theirs = job.slice_of(to, piece);
    for (const std::byte* part : job.own) {
      const std::byte* slice = part + theirs.begin * job.width;
      if (job.narrows_parts()) {
        slice = narrowed(slice, theirs.size, job.parts_type, outgoing_, used);
      }
      send(to, slice, theirs.size * job.part_width());
    }
    const int from = (rank_ + size_ - step) % size_;
    const auto source = static_cast<std::size_t>(from);
    for (std::size_t p = 0; p < job.parts_of[source]; ++p) {
      transfers_.receive(from, &scratch_[0] + (job.first_of[source] + p) * part_bytes, part_bytes);
    }
  }
}

void MpiBackend::add_own_slice(const Reduction& job, std::size_t piece) {
  const Slice mine = job.slice_of(rank_, piece);
  if (mine.size == 0) return;
  const std::size_t first_own = job.first_of[static_cast<std::size_t>(rank_)];
  std::vector<const std::byte*> parts(job.parts());
  if (job.narrows_parts()) {
    wide_.resize(std::max(wide_.size(), parts.size() * mine.size * job.width));
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::byte* const came = scratch_.data() + p * mine.size * job.part_width();
    if (p >= first_own && p - first_own < job.own.size()) {
      parts[p] = job.own[p - first_own] + mine.begin * job.width;
    } else if (job.narrows_parts()) {
      std::byte* const wide = wide_.data() + p * mine.size * job.width;
      kernels::convert_elements(came, job.parts_type, wide, DType::f32, mine.size);
      parts[p] = wide;
    } else {
      parts[p] = came;
    }
  }
  job.combine(parts, job.out + mine.begin * job.width, mine.size);
}

void MpiBackend::spread_slices(const Reduction& job, std::size_t piece) {
  const Slice mine = job.slice_of(rank_, piece);
  const std::byte* sum = job.out + mine.begin * job.width;
  std::size_t width = job.width;
  if (job.narrows_sum()) {
    width = size_of(job.sum_type);
    outgoing_sum_.resize(std::max(outgoing_sum_.size(), mine.size * width));
    std::size_t used = 0;
    sum = narrowed(sum, mine.size, job.sum_type, outgoing_sum_, used);
    const auto ranks = static_cast<std::size_t>(size_);
    incoming_sums_.resize(std::max(incoming_sums_.size(), ranks * job.piece_size() * width));
  }
  for (int step = 1; step < size_; ++step) {
    send((rank_ + step) % size_, sum, mine.size * width);
    const int from = (rank_ + size_ - step) % size_;
    const Slice theirs = job.slice_of(from, piece);
    std::byte* const into =
        job.narrows_sum()
            ? &incoming_sums_[0] + static_cast<std::size_t>(from) * job.piece_size() * width
            : job.out + theirs.begin * width;
    transfers_.receive(from, into, theirs.size * width);
  }
}

void MpiBackend::widen_spread(const Reduction& job, std::size_t piece) {
  if (!job.narrows_sum()) return;
  const std::size_t stride = job.piece_size() * size_of(job.sum_type);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Slice theirs = job.slice_of(rank, piece);
    kernels::convert_elements(incoming_sums_.data() + static_cast<std::size_t>(rank) * stride,
                              job.sum_type, job.out + theirs.begin * job.width, DType::f32,
                              theirs.size);
  }
}

Task MpiBackend::reduce_whole(const Reduction& job, Wait& wait) {
  const std::size_t bytes = job.count * job.width;
  scratch_.resize(std::max(scratch_.size(), job.parts() * bytes));
  std::vector<const std::byte*> parts(job.parts());
  for (std::size_t p = 0; p < parts.size(); ++p) parts[p] = scratch_.data() + p * bytes;
  for (int step = 1; step < size_; ++step) {
    for (const std::byte* part : job.own) send((rank_ + step) % size_, part, bytes);
    const int from = (rank_ + size_ - step) % size_;
    const auto source = static_cast<std::size_t>(from);
    for (std::size_t p = 0; p < job.parts_of[source]; ++p) {
      transfers_.receive(from, &scratch_[0] + (job.first_of[source] + p) * bytes, bytes);
    }
  }
  co_await transfers_.complete(wait);
  for (std::size_t p = 0; p < job.own.size(); ++p) {
    parts[job.first_of[static_cast<std::size_t>(rank_)] + p] = job.own[p];
  }
  job.combine(parts, job.out, job.count);
}

Task MpiBackend::reduce(Reduction job, Wait& wait) {
  if (job.count == 0) co_return;
  if (job.parts() * job.count * job.width <= kWholeBytes) {
    co_await reduce_whole(job, wait);
    co_return;
  }
  const std::size_t pieces = job.pieces();
  exchange_slices(job, 0);
  co_await transfers_.complete(wait);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    add_own_slice(job, piece);
    if (job.spreads) spread_slices(job, piece);
    if (piece + 1 < pieces) exchange_slices(job, piece + 1);
    co_await transfers_.complete(wait);
    if (job.spreads) widen_spread(job, piece);
  }
}

Task MpiBackend::all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                            Wait& wait) {
  Reduction job;
  job.own = {inout};
  job.out = inout;
  job.count = count;
  job.width = size_of(dtype);
  job.parts_of.assign(static_cast<std::size_t>(size_), 1);
  job.first_of.resize(static_cast<std::size_t>(size_));
  std::iota(job.first_of.begin(), job.first_of.end(), std::size_t{0});
  job.combine = combine_in_order(dtype, op);
  job.edges = even_edges(count);
  return reduce(std::move(job), wait);
}

MpiBackend::Reduction MpiBackend::reduction_by(std::span<float* const> parts, float* out,
                                               std::size_t count, const SumPlan& plan) const {
  Reduction job;
  for (const float* part : parts) {
    job.own.push_back(reinterpret_cast<const std::byte*>(part));
  }
  job.out = reinterpret_cast<std::byte*>(out);
  job.count = count;
  job.width = sizeof(float);
  std::size_t first = 0;
  for (const int each : plan.parts_of_rank) {
    job.first_of.push_back(first);
    job.parts_of.push_back(static_cast<std::size_t>(each));
    first += static_cast<std::size_t>(each);
  }
  job.combine = combine_by_plan(plan);
  job.parts_type = plan.parts_type;
  job.sum_type = plan.sum_type;
  job.edges = even_edges(count);
  return job;
}

Task MpiBackend::reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                              const SumPlan& plan, Wait& wait) {
  return reduce(reduction_by(parts, out, count, plan), wait);
}

Task MpiBackend::reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                                const SumPlan& plan, std::span<const std::size_t> edges,
                                Wait& wait) {
  Reduction job = reduction_by(parts, out, count, plan);
  job.edges.assign(edges.begin(), edges.end());
  job.spreads = false;
  return reduce(std::move(job), wait);
}

Task MpiBackend::all_gather_slices(float* inout, std::size_t /*count*/,
                                   std::span<const std::size_t> edges, Wait& wait) {
  const auto bytes_of = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(reinterpret_cast<std::byte*>(inout + edges[r]),
                     (edges[r + 1] - edges[r]) * sizeof(float));
  };
  const std::span<std::byte> mine = bytes_of(rank_);
  for (int step = 1; step < size_; ++step) {
    send((rank_ + step) % size_, mine.data(), mine.size());
    const int from = (rank_ + size_ - step) % size_;
    transfers_.receive(from, bytes_of(from).data(), bytes_of(from).size());
  }
  co_await transfers_.complete(wait);
}

Task MpiBackend::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                            Wait& wait) {
  std::byte* own = out + static_cast<std::size_t>(rank_) * bytes_each;
  if (own != in && bytes_each > 0) std::memmove(own, in, bytes_each);
  for (int step = 1; step < size_; ++step) {
    send((rank_ + step) % size_, own, bytes_each);
    const int from = (rank_ + size_ - step) % size_;
    transfers_.receive(from, out + static_cast<std::size_t>(from) * bytes_each, bytes_each);
  }
  co_await transfers_.complete(wait);
}

// A binomial tree, segment by segment: a rank hands one on while its parent already sends the next.
Task MpiBackend::broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  const int place = (rank_ + size_ - root) % size_;  // the root's is 0
  const auto rank_at = [&](int at) { return (at + root) % size_; };
  int reach = 1;  // the first child is so far away: the lowest set bit of our place
  while (reach < size_ && (place & reach) == 0) reach *= 2;
  for (std::size_t begin = 0; begin < bytes; begin += MpiTransfers::kSegmentBytes) {
    const std::size_t size = std::min(MpiTransfers::kSegmentBytes, bytes - begin);
    if (place != 0) {
      transfers_.receive(rank_at(place - reach), inout + begin, size);
      co_await transfers_.complete(wait);
    }
    for (int far = reach / 2; far > 0; far /= 2) {
      if (place + far < size_) send(rank_at(place + far), inout + begin, size);
    }
  }
  co_await transfers_.complete(wait);
}

// Dissemination: after round k each rank knows of the 2^(k+1) ranks before it.
Task MpiBackend::barrier(Wait& wait) {
  std::byte sent{};
  std::byte received{};
  for (int far = 1; far < size_; far *= 2) {
    send((rank_ + far) % size_, &sent, 1);
    transfers_.receive((rank_ + size_ - far) % size_, &received, 1);
    co_await transfers_.complete(wait);
  }
}

}  // namespace lockstep
