// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/lamb.h"

#include <cmath>

#include "core/copy.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::optim {
namespace {

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

Device device_of(const std::vector<MomentSlot>& slots) {
  return slots.empty() ? Device{} : slots.front().m.device();
}

}  // namespace

Lamb::Lamb(const ParameterSlices& parameters, const BucketPlan& plan, const MomentOptions& options,
           Shards* shards)
    : Optimizer(parameters),
      options_(options),
      plan_(plan),
      shards_(shards),
      slots_(make_moments(parameters, options)),
      weights_(host_tensor(device_of(slots_), {blocks_of(plan.arena_elements)}, DType::f64)),
      directions_(host_tensor(device_of(slots_), weights_.shape(), DType::f64)) {
  if (slots_.size() == plan.entries.size()) return;
  throw UsageError("LAMB: " + std::to_string(slots_.size()) + " parameters with a plan of " +
                       std::to_string(plan.entries.size()),
                   "pass the parameters that the plan was made of");
}

double Lamb::norm_of(const Tensor& by_block, std::size_t i) const {
  const ArenaEntry& entry = plan_.entries[i];
  double sum = 0.0;
  for (std::int64_t block = 0; block < blocks_of(entry.size); ++block) {
    sum += by_block.as<double>()[blocks_of(entry.offset) + block];
  }
  return std::sqrt(sum);
}

void Lamb::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const MomentSlot& slot = slots_[i];
    if (!slot.slice.is_updated()) continue;
    const Tensor weights = slot.slice.weights();
    const Tensor direction = slot.slice.grad();
    kernels::lamb_direction(stream, weights, direction, slot.m, slot.v,
                            {.beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .epsilon = options_.epsilon,
                             .weight_decay = slot.weight_decay,
                             .scale = scale.scale,
                             .clip = scale.clip,
                             .t = t,
                             .gate = scale.gate});
    const std::int64_t first = blocks_of(plan_.entries[i].offset + slot.slice.begin());
    kernels::block_square_sums(stream, weights, kBlockElements, weights_.as<double>() + first);
    kernels::block_square_sums(stream, direction, kBlockElements, directions_.as<double>() + first);
  }
  if (shards_) {
    for (const Tensor& sums : {weights_, directions_}) {
      shards_->gather(stream, {sums.as<double>(), to_size(sums.size())});
    }
  }
  stream.synchronize();
  if (scale.gate && !scale.gate->open) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParameterSlice& slice = slots_[i].slice;
    if (!slice.is_updated()) continue;
    const double weight = norm_of(weights_, i);
    const double direction = norm_of(directions_, i);
    const double ratio = weight > 0.0 && direction > 0.0 ? weight / direction : 1.0;
    const auto factor = static_cast<float>(-static_cast<double>(scale.learning_rate) * ratio);
    kernels::add_scaled(stream, factor, slice.grad(), slice.weights());
  }
}

}  // namespace lockstep::optim
