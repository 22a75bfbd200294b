// SPDX-License-Identifier: Apache-2.0
#include "collectives/step_header.h"

#include <cmath>
#include <cstring>

namespace lockstep {

// A rank's row begins with this; the sums of its leaves follow.
struct StepHeader::Fixed {
  std::int64_t notice;
  std::int64_t skip;
};

StepHeader::StepHeader(int rank, int ranks, std::int64_t leaves)
    : rank_(rank), ranks_(ranks), leaves_(leaves) {
  const auto bytes = static_cast<std::int64_t>(bytes_each());
  mine_ = Tensor(Device{}, {bytes}, DType::u8);
  all_ = Tensor(Device{}, {ranks * bytes}, DType::u8);
  clear();
}

std::size_t StepHeader::bytes_each() const noexcept {
  const std::int64_t most_leaves = (leaves_ + ranks_ - 1) / ranks_;
  return sizeof(Fixed) + static_cast<std::size_t>(most_leaves) * sizeof(LeafSums);
}

void StepHeader::clear() {
  std::memset(mine_.data(), 0, mine_.bytes());
  set({});
}

LeafSums* StepHeader::leaf_sums(std::int64_t leaf) noexcept {
  auto* sums = reinterpret_cast<LeafSums*>(static_cast<std::byte*>(mine_.data()) + sizeof(Fixed));
  return sums + (leaf - owned_leaves(rank_, ranks_, leaves_).begin);
}

void StepHeader::set(StepFlags flags) noexcept {
  *static_cast<Fixed*>(mine_.data()) = {.notice = flags.notice ? 1 : 0, .skip = flags.skip ? 1 : 0};
}

const StepHeader::Fixed* StepHeader::fixed_of(int rank) const noexcept {
  const auto* row =
      static_cast<const std::byte*>(all_.data()) + static_cast<std::size_t>(rank) * bytes_each();
  return reinterpret_cast<const Fixed*>(row);
}

const LeafSums* StepHeader::sums_of(int rank) const noexcept {
  return reinterpret_cast<const LeafSums*>(fixed_of(rank) + 1);
}

StepTotals StepHeader::totals() const noexcept {
  StepTotals totals;
  for (int rank = 0; rank < ranks_; ++rank) {
    totals.notice = totals.notice || fixed_of(rank)->notice != 0;
    totals.skip = totals.skip || fixed_of(rank)->skip != 0;
    const LeafRange range = owned_leaves(rank, ranks_, leaves_);
    const LeafSums* sums = sums_of(rank);
    for (std::int64_t leaf = range.begin; leaf < range.end; ++leaf, ++sums) {
      totals.loss += sums->loss;
      totals.tokens += sums->tokens;
      if (sums->non_finite == 0 && std::isfinite(sums->loss)) continue;
      totals.non_finite = true;
      if (totals.non_finite_leaf < 0) totals.non_finite_leaf = leaf;
    }
  }
  return totals;
}

}  // namespace lockstep
