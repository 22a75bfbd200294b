// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/sgd.h"

#include "core/kernels.h"
#include "optim/options.h"

namespace lockstep::optim {

Sgd::Sgd(const ParameterSlices& parameters, const SgdOptions& options)
    : Optimizer(parameters), options_(options) {
  require_fraction("optim.momentum", options.momentum);
  require_not_negative("optim.weight_decay", options.weight_decay);
  if (options.nesterov && options.momentum == 0.0F) {
    throw ConfigError("optim.nesterov = true with optim.momentum = 0",
                      "give a momentum above 0, or leave Nesterov off");
  }
  const NoDecay no_decay(options.no_decay);
  for (const ParameterSlice& slice : parameters) {
    const bool decays = !no_decay.matches(slice.parameter().name());
    slots_.push_back({.slice = slice,
                      .buffer = options.momentum > 0.0F ? slice.make_state() : Tensor(),
                      .weight_decay = decays ? options.weight_decay : 0.0F});
  }
}

void Sgd::bind_rule(StateDict& state) {
  for (const Slot& slot : slots_) {
    if (!slot.buffer.defined()) continue;
    slot.slice.bind(state, StateKind::m, slot.buffer);
  }
}

void Sgd::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  for (const Slot& slot : slots_) {
    if (!slot.slice.is_updated()) continue;
    kernels::sgd(stream, slot.slice.weights(), slot.slice.grad(), slot.buffer,
                 {.learning_rate = scale.learning_rate,
                  .momentum = options_.momentum,
                  .weight_decay = slot.weight_decay,
                  .scale = scale.scale,
                  .clip = scale.clip,
                  .nesterov = options_.nesterov,
                  .t = t,
                  .gate = scale.gate});
  }
}

}  // namespace lockstep::optim
