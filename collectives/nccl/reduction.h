// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/collectives/sum_plan.h"

namespace lockstep::nccl {

/// Where the slices begin that each rank adds up, and the end: cache lines of f32, nearly even.
std::vector<std::size_t> even_edges(std::size_t count, int ranks);

/// How a sum by a plan is cut up: rank r adds elements [edges[r], edges[r + 1]), piece by piece, so
/// that what the others send of a piece fits into a fixed scratch memory. Arithmetic alone, the
/// same on every rank: it depends on the plan and the edges.
class Reduction {
 public:
  struct Slice {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  /// Areas of the scratch memory, by their first byte. 16-bit areas are empty where nothing is
  /// narrow.
  struct Scratch {
    std::size_t came = 0;       // by part: what others sent of this rank's slice, as it travels
    std::size_t wide = 0;       // by part: the same in f32
    std::size_t narrow = 0;     // own parts of the others' slices
    std::size_t sum = 0;        // own slice of the sum
    std::size_t came_sums = 0;  // by rank: the others'
    std::size_t bytes = 0;
  };

  /// `plan` must outlive it.
  Reduction(const SumPlan& plan, std::vector<std::size_t> edges, std::size_t scratch_bytes);

  const SumPlan& plan() const noexcept { return plan_; }
  bool narrows_parts() const noexcept { return plan_.parts_type != DType::f32; }
  bool narrows_sum() const noexcept { return plan_.sum_type != DType::f32; }

  std::size_t parts() const noexcept { return first_part_.back(); }
  /// Numbers of the rank's parts: [first_part(rank), first_part(rank + 1)).
  std::size_t first_part(std::size_t rank) const { return first_part_[rank]; }

  std::size_t pieces() const;
  std::size_t piece_size() const noexcept { return piece_size_; }
  Slice slice_of(std::size_t rank, std::size_t piece) const;
  const Scratch& scratch() const noexcept { return scratch_; }

 private:
  Scratch areas(std::size_t piece_size) const;

  const SumPlan& plan_;
  std::vector<std::size_t> edges_;
  std::vector<std::size_t> first_part_;
  std::size_t most_parts_ = 0;  // of one rank
  std::size_t piece_size_ = 0;  // elements of a slice
  Scratch scratch_;
};

}  // namespace lockstep::nccl
