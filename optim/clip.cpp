// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/clip.h"

#include <algorithm>
#include <cmath>

#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::optim {
GlobalNorm::GlobalNorm(const Parameters& parameters, const BucketPlan& plan, Shards* shards)
    : shards_(shards), block_sums_(static_cast<std::size_t>(blocks_of(plan.arena_elements))) {
  if (parameters.size() != plan.entries.size()) {
    throw UsageError("global norm: " + std::to_string(parameters.size()) +
                         " parameters with a plan of " + std::to_string(plan.entries.size()),
                     "pass the parameters that the plan was made of");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t first = plan.entries[i].offset / kBlockElements;
    places_.push_back({.name = parameters[i]->name(),
                       .first_block = first,
                       .end_block = first + blocks_of(plan.entries[i].size)});
  }
}

GradientNorm GlobalNorm::measure(Stream& stream, const Tensor& arena) {
  if (blocks_of(arena.size()) != static_cast<std::int64_t>(block_sums_.size())) {
    throw UsageError("global norm: an arena of " + std::to_string(arena.size()) +
                         " elements with a plan of " + std::to_string(block_sums_.size()) +
                         " blocks",
                     "pass the arena that the plan describes");
  }
  const auto sum_blocks = [&](std::int64_t begin, std::int64_t end) {
    kernels::block_square_sums(stream, arena.rows(begin, end), kBlockElements,
                               block_sums_.data() + begin / kBlockElements);
  };
  if (shards_) {
    for (const Shards::Share& share : shards_->own()) sum_blocks(share.begin, share.end);
  } else {
    sum_blocks(0, arena.size());
  }
  stream.synchronize();
  if (shards_) shards_->gather(block_sums_);

  double sum = 0.0;
  for (const double block : block_sums_) sum += block;
  GradientNorm result{.of_sums = std::sqrt(sum), .non_finite_parameter = {}};
  // A square of an f32 cannot overflow f64, so a sum is finite exactly if all elements are.
  if (std::isfinite(sum)) return result;
  for (const Place& place : places_) {
    const auto begin = block_sums_.begin() + place.first_block;
    const auto end = block_sums_.begin() + place.end_block;
    if (std::any_of(begin, end, [](double block) { return !std::isfinite(block); })) {
      result.non_finite_parameter = place.name;
      return result;
    }
  }
  result.non_finite_parameter = "(padding of the arena)";
  return result;
}

float clip_factor(double norm, double limit) noexcept {
  if (limit <= 0.0 || !std::isfinite(norm) || norm <= limit) return 1.0F;
  return static_cast<float>(limit / norm);
}

}  // namespace lockstep::optim
