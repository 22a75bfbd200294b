// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/reduction.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::nccl {
namespace {

constexpr std::size_t kSliceElements = 16;
constexpr std::size_t kPieceElements = 64;  // areas of the scratch begin on cache lines

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::vector<std::size_t> even_edges(std::size_t count, int ranks) {
  const auto slices = static_cast<std::size_t>(ranks);
  const std::size_t each = round_up((count + slices - 1) / slices, kSliceElements);
  std::vector<std::size_t> edges;
  for (std::size_t rank = 0; rank <= slices; ++rank) edges.push_back(std::min(each * rank, count));
  return edges;
}

Reduction::Reduction(const SumPlan& plan, std::vector<std::size_t> edges, std::size_t scratch_bytes)
    : plan_(plan), edges_(std::move(edges)), first_part_{0} {
  for (const int parts : plan.parts_of_rank) {
    const auto own = static_cast<std::size_t>(parts);
    first_part_.push_back(first_part_.back() + own);
    most_parts_ = std::max(most_parts_, own);
  }
  const std::size_t bytes_of_least = areas(kPieceElements).bytes;
  if (bytes_of_least > scratch_bytes) {
    throw UsageError("a sum of " + std::to_string(parts()) + " parts is more than NCCL's " +
                         std::to_string(scratch_bytes) + " bytes of scratch memory hold",
                     "use fewer ranks");
  }
  piece_size_ = scratch_bytes / bytes_of_least * kPieceElements;
  scratch_ = areas(piece_size_);
}

Reduction::Scratch Reduction::areas(std::size_t piece_size) const {
  const std::size_t ranks = plan_.parts_of_rank.size();
  const std::size_t part_bytes = piece_size * size_of(plan_.parts_type);
  const std::size_t sum_bytes = piece_size * size_of(plan_.sum_type);
  Scratch at;
  at.wide = at.came + parts() * part_bytes;
  at.narrow = at.wide + (narrows_parts() ? parts() * piece_size * sizeof(float) : 0);
  at.sum = at.narrow + (narrows_parts() ? most_parts_ * ranks * part_bytes : 0);
  at.came_sums = at.sum + (narrows_sum() ? sum_bytes : 0);
  at.bytes = at.came_sums + (narrows_sum() ? ranks * sum_bytes : 0);
  return at;
}

std::size_t Reduction::pieces() const {
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank + 1 < edges_.size(); ++rank) {
    longest = std::max(longest, edges_[rank + 1] - edges_[rank]);
  }
  return (longest + piece_size_ - 1) / piece_size_;
}

Reduction::Slice Reduction::slice_of(std::size_t rank, std::size_t piece) const {
  const std::size_t begin = std::min(edges_[rank] + piece * piece_size_, edges_[rank + 1]);
  return {.begin = begin, .size = std::min(piece_size_, edges_[rank + 1] - begin)};
}

}  // namespace lockstep::nccl
