// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/lamb.h"

#include <cmath>

#include "core/kernels.h"
#include "optim/options.h"

namespace lockstep::optim {
namespace {

std::size_t blocks_of(std::int64_t elements) {
  return static_cast<std::size_t>((elements + kBlockElements - 1) / kBlockElements);
}

}  // namespace

Lamb::Lamb(const ParameterSlices& parameters, const BucketPlan& plan, const LambOptions& options,
           const Shards* shards)
    : options_(options),
      shards_(shards),
      weights_(blocks_of(plan.arena_elements)),
      directions_(weights_.size()) {
  require_moments(options.beta1, options.beta2, options.epsilon);
  require_not_negative("optim.weight_decay", options.weight_decay);
  const NoDecay no_decay(options.no_decay);
  for (const ParameterSlice& slice : parameters) {
    if (slots_.size() == plan.entries.size()) {
      throw UsageError(
          "LAMB: more parameters than the plan's " + std::to_string(plan.entries.size()),
          "pass the parameters that the plan was made of");
    }
    const ArenaEntry& entry = plan.entries[slots_.size()];
    const std::size_t first = blocks_of(entry.offset);
    const bool decays = !no_decay.matches(slice.parameter().name());
    slots_.push_back({.slice = slice,
                      .m = slice.make_state(),
                      .v = slice.make_state(),
                      .weight_decay = decays ? options.weight_decay : 0.0F,
                      .first_block = first,
                      .end_block = first + blocks_of(entry.size)});
  }
}

void Lamb::bind(StateDict& state) {
  for (const Slot& slot : slots_) {
    slot.slice.bind(state, StateKind::m, slot.m);
    slot.slice.bind(state, StateKind::v, slot.v);
  }
}

void Lamb::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  for (const Slot& slot : slots_) {
    if (!slot.slice.is_updated()) continue;
    const Tensor weights = slot.slice.value();
    const Tensor direction = slot.slice.grad();
    kernels::lamb_direction(stream, weights, direction, slot.m, slot.v,
                            {.beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .epsilon = options_.epsilon,
                             .weight_decay = slot.weight_decay,
                             .scale = scale.scale,
                             .clip = scale.clip,
                             .t = t});
    const std::size_t first = slot.first_block + blocks_of(slot.slice.begin());
    kernels::block_square_sums(stream, weights, kBlockElements, &weights_[first]);
    kernels::block_square_sums(stream, direction, kBlockElements, &directions_[first]);
  }
  stream.synchronize();
  if (shards_) {
    shards_->gather(weights_);
    shards_->gather(directions_);
  }
  for (const Slot& slot : slots_) {
    if (!slot.slice.is_updated()) continue;
    const auto norm_of = [&](const std::vector<double>& sums) {
      double sum = 0.0;
      for (std::size_t block = slot.first_block; block < slot.end_block; ++block) {
        sum += sums[block];
      }
      return std::sqrt(sum);
    };
    const double weight = norm_of(weights_);
    const double direction = norm_of(directions_);
    const double ratio = weight > 0.0 && direction > 0.0 ? weight / direction : 1.0;
    const auto factor = static_cast<float>(-static_cast<double>(scale.learning_rate) * ratio);
    kernels::add_scaled(stream, factor, slot.slice.grad(), slot.slice.value());
  }
}

}  // namespace lockstep::optim
