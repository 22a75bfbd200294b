// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/adamw.h"

#include "core/kernels.h"

namespace lockstep::optim {

AdamW::AdamW(const ParameterSlices& parameters, const MomentOptions& options, WeightDecay decay)
    : Optimizer(parameters),
      options_(options),
      decay_(decay),
      slots_(make_moments(parameters, options)) {}

void AdamW::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  const bool decoupled = decay_ == WeightDecay::decoupled;
  for (const MomentSlot& slot : slots_) {
    if (!slot.slice.is_updated()) continue;
    kernels::adamw(stream, slot.slice.weights(), slot.slice.grad(), slot.m, slot.v,
                   {.learning_rate = scale.learning_rate,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .weight_decay = decoupled ? slot.weight_decay : 0.0F,
                    .l2 = decoupled ? 0.0F : slot.weight_decay,
                    .scale = scale.scale,
                    .clip = scale.clip,
                    .t = t,
                    .gate = scale.gate});
  }
}

}  // namespace lockstep::optim
