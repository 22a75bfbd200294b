// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/moments.h"

#include "optim/options.h"

namespace lockstep::optim {

std::vector<MomentSlot> make_moments(const ParameterSlices& parameters,
                                     const MomentOptions& options) {
  require_fraction("optim.beta1", options.beta1);
  require_fraction("optim.beta2", options.beta2);
  require_option(options.epsilon > 0.0F && std::isfinite(options.epsilon), "optim.eps",
                 options.epsilon, "a finite number above 0");
  require_not_negative("optim.weight_decay", options.weight_decay);
  const NoDecay no_decay(options.no_decay);
  std::vector<MomentSlot> slots;
  for (const ParameterSlice& slice : parameters) {
    const bool decays = !no_decay.matches(slice.parameter().name());
    slots.push_back({.slice = slice,
                     .m = slice.make_state(),
                     .v = slice.make_state(),
                     .weight_decay = decays ? options.weight_decay : 0.0F});
  }
  return slots;
}

void bind_moments(const std::vector<MomentSlot>& slots, StateDict& state) {
  for (const MomentSlot& slot : slots) {
    slot.slice.bind(state, StateKind::m, slot.m);
    slot.slice.bind(state, StateKind::v, slot.v);
  }
}

}  // namespace lockstep::optim
