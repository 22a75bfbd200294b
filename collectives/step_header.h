// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/collectives/reducer.h"

namespace lockstep {

/// What the ranks of a step tell each other beside gradients: sums of every leaf, and flags. One
/// all_gather of a few hundred bytes.
class StepHeader {
 public:
  StepHeader(int rank, int ranks, std::int64_t leaves);

  /// Before a step: all zero.
  void clear();
  /// Where own leaf `leaf` (of the global batch) is written; stays the same for good.
  LeafSums* leaf_sums(std::int64_t leaf) noexcept;
  void set(StepFlags flags) noexcept;

  /// Bytes to send and to receive, for all_gather.
  const Tensor& mine() const noexcept { return mine_; }
  const Tensor& all() const noexcept { return all_; }

  /// After the all_gather.
  StepTotals totals() const noexcept;

 private:
  struct Fixed;
  std::size_t bytes_each() const noexcept;
  const Fixed* fixed_of(int rank) const noexcept;
  const LeafSums* sums_of(int rank) const noexcept;

  int rank_;
  int ranks_;
  std::int64_t leaves_;
  Tensor mine_;
  Tensor all_;
};

}  // namespace lockstep
