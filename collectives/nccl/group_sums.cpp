// SPDX-License-Identifier: Apache-2.0
// Sums in the order of a plan: slices are exchanged, added where they belong, and spread.
#include <algorithm>
#include <utility>

#include "collectives/nccl/group_backend.h"
#include "core/kernels.h"

namespace lockstep::nccl {

struct GroupBackend::Job {
  std::vector<float*> own;  // this rank's parts
  float* out = nullptr;
  Reduction cut;
  bool spreads = true;  // to all, or each rank keeps its slice
};

Task GroupBackend::reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                                const SumPlan& plan, Wait& wait) {
  return run(reduce({.own = {parts.begin(), parts.end()},
                     .out = out,
                     .cut = Reduction(plan, even_edges(count, size()), kScratchBytes)},
                    wait),
             wait);
}

Task GroupBackend::reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                                  const SumPlan& plan, std::span<const std::size_t> edges,
                                  Wait& wait) {
  static_cast<void>(count);
  return run(reduce({.own = {parts.begin(), parts.end()},
                     .out = out,
                     .cut = Reduction(plan, {edges.begin(), edges.end()}, kScratchBytes),
                     .spreads = false},
                    wait),
             wait);
}

// All of it is queued at once but for what NCCL holds back; the stream keeps the order, so that one
// scratch memory serves all pieces.
Task GroupBackend::reduce(Job job, Wait& wait) {
  const std::size_t pieces = job.cut.pieces();
  if (pieces == 0) co_return;
  std::vector<Message> messages;
  name_parts(job, 0, messages);
  co_await queue(std::exchange(messages, {}), wait);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    add_own_slice(job, piece);
    if (job.spreads) name_sums(job, piece, messages);
    if (piece + 1 < pieces) name_parts(job, piece + 1, messages);
    co_await queue(std::exchange(messages, {}), wait);
    if (job.spreads) widen_sums(job, piece);
  }
  co_await settle(wait);
}

// This rank's parts of the others' slices, and the others' parts of its own.
void GroupBackend::name_parts(const Job& job, std::size_t piece, std::vector<Message>& messages) {
  const Reduction& cut = job.cut;
  const DType type = cut.plan().parts_type;
  const std::size_t stride = cut.piece_size() * size_of(type);
  const Reduction::Slice mine = cut.slice_of(rank_, piece);
  std::byte* narrow = scratch(cut.scratch().narrow);
  for (std::size_t step = 1; step < size_; ++step) {
    // Each rank begins with another peer, so that no one is everybody's first.
    const std::size_t to = (rank_ + step) % size_;
    const Reduction::Slice theirs = cut.slice_of(to, piece);
    for (float* const part : job.own) {
      void* data = part + theirs.begin;
      if (cut.narrows_parts() && theirs.size > 0) {
        kernels::convert(buffers_->stream, at(data, theirs.size), at(narrow, theirs.size, type));
        data = narrow;
        narrow += stride;
      }
      messages.push_back(
          {.sends = true, .peer = to, .data = data, .bytes = theirs.size * size_of(type)});
    }
    const std::size_t from = (rank_ + size_ - step) % size_;
    for (std::size_t part = cut.first_part(from); part < cut.first_part(from + 1); ++part) {
      messages.push_back({.sends = false,
                          .peer = from,
                          .data = scratch(cut.scratch().came + part * stride),
                          .bytes = mine.size * size_of(type)});
    }
  }
}

void GroupBackend::add_own_slice(const Job& job, std::size_t piece) {
  const Reduction& cut = job.cut;
  const SumPlan& plan = cut.plan();
  const Reduction::Slice mine = cut.slice_of(rank_, piece);
  if (mine.size == 0) return;
  Stream& stream = buffers_->stream;
  const std::size_t first_own = cut.first_part(rank_);
  const std::size_t stride = cut.piece_size() * size_of(plan.parts_type);
  const std::size_t wide_stride = cut.piece_size() * sizeof(float);
  std::vector<Tensor> parts;
  for (std::size_t part = 0; part < cut.parts(); ++part) {
    std::byte* const came = scratch(cut.scratch().came + part * stride);
    if (part >= first_own && part < first_own + job.own.size()) {
      parts.push_back(at(job.own[part - first_own] + mine.begin, mine.size));
    } else if (cut.narrows_parts()) {
      parts.push_back(at(scratch(cut.scratch().wide + part * wide_stride), mine.size));
      kernels::convert(stream, at(came, mine.size, plan.parts_type), parts.back());
    } else {
      parts.push_back(at(came, mine.size));
    }
  }
  const auto part_at = [&](int part) { return parts[static_cast<std::size_t>(part)]; };
  for (const SumPlan::Add& add : plan.adds) {
    kernels::add(stream, part_at(add.from), part_at(add.into));
  }
  const Tensor sum = at(job.out + mine.begin, mine.size);
  if (part_at(plan.result).data() != sum.data()) kernels::copy(stream, part_at(plan.result), sum);
  if (cut.narrows_sum()) kernels::round(stream, sum, plan.sum_type);
}

void GroupBackend::name_sums(const Job& job, std::size_t piece, std::vector<Message>& messages) {
  const Reduction& cut = job.cut;
  const DType type = cut.plan().sum_type;
  const std::size_t stride = cut.piece_size() * size_of(type);
  const Reduction::Slice mine = cut.slice_of(rank_, piece);
  void* sum = job.out + mine.begin;
  if (cut.narrows_sum() && mine.size > 0) {
    std::byte* const narrow = scratch(cut.scratch().sum);
    kernels::convert(buffers_->stream, at(sum, mine.size), at(narrow, mine.size, type));
    sum = narrow;
  }
  for (std::size_t step = 1; step < size_; ++step) {
    messages.push_back({.sends = true,
                        .peer = (rank_ + step) % size_,
                        .data = sum,
                        .bytes = mine.size * size_of(type)});
    const std::size_t from = (rank_ + size_ - step) % size_;
    const Reduction::Slice theirs = cut.slice_of(from, piece);
    void* into = job.out + theirs.begin;
    if (cut.narrows_sum()) into = scratch(cut.scratch().came_sums + from * stride);
    messages.push_back(
        {.sends = false, .peer = from, .data = into, .bytes = theirs.size * size_of(type)});
  }
}

void GroupBackend::widen_sums(const Job& job, std::size_t piece) {
  const Reduction& cut = job.cut;
  if (!cut.narrows_sum()) return;
  const DType type = cut.plan().sum_type;
  const std::size_t stride = cut.piece_size() * size_of(type);
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const Reduction::Slice theirs = cut.slice_of(rank, piece);
    if (rank == rank_ || theirs.size == 0) continue;
    kernels::convert(buffers_->stream,
                     at(scratch(cut.scratch().came_sums + rank * stride), theirs.size, type),
                     at(job.out + theirs.begin, theirs.size));
  }
}

}  // namespace lockstep::nccl
