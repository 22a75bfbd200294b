// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/adamw.h"

#include "core/kernels.h"
#include "optim/options.h"

namespace lockstep::optim {

AdamW::AdamW(const Parameters& parameters, const AdamWOptions& options) : options_(options) {
  require_fraction("optim.beta1", options.beta1);
  require_fraction("optim.beta2", options.beta2);
  require_option(options.epsilon > 0.0F && std::isfinite(options.epsilon), "optim.eps",
                 options.epsilon, "a finite number above 0");
  require_not_negative("optim.weight_decay", options.weight_decay);
  const NoDecay no_decay(options.no_decay);
  for (Parameter* parameter : parameters) {
    const Device device = parameter->value().device();
    slots_.push_back(
        {.parameter = parameter,
         .m = Tensor::zeros(device, parameter->shape(), DType::f32),
         .v = Tensor::zeros(device, parameter->shape(), DType::f32),
         .weight_decay = no_decay.matches(parameter->name()) ? 0.0F : options.weight_decay});
  }
}

void AdamW::bind(StateDict& state) {
  for (const Slot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    state.bind(parameter.name(), StateKind::m, slot.m, parameter.tensor_axis());
    state.bind(parameter.name(), StateKind::v, slot.v, parameter.tensor_axis());
  }
}

void AdamW::update(Stream& stream, const UpdateScale& scale, std::int64_t t) {
  for (const Slot& slot : slots_) {
    kernels::adamw(stream, slot.parameter->value(), slot.parameter->grad(), slot.m, slot.v,
                   {.learning_rate = scale.learning_rate,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .weight_decay = slot.weight_decay,
                    .scale = scale.scale,
                    .clip = scale.clip,
                    .t = t});
  }
}

}  // namespace lockstep::optim
