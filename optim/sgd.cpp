// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/sgd.h"

#include "core/kernels.h"
#include "optim/options.h"

namespace lockstep::optim {

Sgd::Sgd(const Parameters& parameters, const SgdOptions& options) : options_(options) {
  require_fraction("optim.momentum", options.momentum);
  require_not_negative("optim.weight_decay", options.weight_decay);
  if (options.nesterov && options.momentum == 0.0F) {
    throw ConfigError("optim.nesterov = true with optim.momentum = 0",
                      "give a momentum above 0, or leave Nesterov off");
  }
  const NoDecay no_decay(options.no_decay);
  for (Parameter* parameter : parameters) {
    slots_.push_back(
        {.parameter = parameter,
         .buffer = options.momentum > 0.0F
                       ? Tensor::zeros(parameter->value().device(), parameter->shape(), DType::f32)
                       : Tensor(),
         .weight_decay = no_decay.matches(parameter->name()) ? 0.0F : options.weight_decay});
  }
}

void Sgd::bind(StateDict& state) {
  for (const Slot& slot : slots_) {
    if (!slot.buffer.defined()) continue;
    state.bind(slot.parameter->name(), StateKind::m, slot.buffer, slot.parameter->tensor_axis());
  }
}

void Sgd::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  for (const Slot& slot : slots_) {
    kernels::sgd(stream, slot.parameter->value(), slot.parameter->grad(), slot.buffer,
                 {.learning_rate = scale.learning_rate,
                  .momentum = options_.momentum,
                  .weight_decay = slot.weight_decay,
                  .scale = scale.scale,
                  .clip = scale.clip,
                  .nesterov = options_.nesterov,
                  .t = t});
  }
}

}  // namespace lockstep::optim
