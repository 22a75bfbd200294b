// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/adamw.h"

#include "core/kernels.h"
#include "optim/options.h"

namespace lockstep::optim {

AdamW::AdamW(const ParameterSlices& parameters, const AdamWOptions& options) : options_(options) {
  require_moments(options.beta1, options.beta2, options.epsilon);
  require_not_negative("optim.weight_decay", options.weight_decay);
  const NoDecay no_decay(options.no_decay);
  for (const ParameterSlice& slice : parameters) {
    const bool decays = !no_decay.matches(slice.parameter().name());
    slots_.push_back({.slice = slice,
                      .m = slice.make_state(),
                      .v = slice.make_state(),
                      .weight_decay = decays ? options.weight_decay : 0.0F});
  }
}

void AdamW::bind(StateDict& state) {
  for (const Slot& slot : slots_) {
    slot.slice.bind(state, StateKind::m, slot.m);
    slot.slice.bind(state, StateKind::v, slot.v);
  }
}

void AdamW::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  const bool decoupled = options_.decay == WeightDecay::decoupled;
  for (const Slot& slot : slots_) {
    if (!slot.slice.is_updated()) continue;
    kernels::adamw(stream, slot.slice.value(), slot.slice.grad(), slot.m, slot.v,
                   {.learning_rate = scale.learning_rate,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .weight_decay = decoupled ? slot.weight_decay : 0.0F,
                    .l2 = decoupled ? 0.0F : slot.weight_decay,
                    .scale = scale.scale,
                    .clip = scale.clip,
                    .t = t});
  }
}

}  // namespace lockstep::optim
