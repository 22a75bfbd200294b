// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/adamw_factors.h"

#include <cmath>

#include "core/kernels.h"

namespace lockstep::kernels {

AdamWFactors factors_of(const AdamWStep& step) {
  const double beta1 = step.beta1;
  const double beta2 = step.beta2;
  const double rate = step.learning_rate;
  const auto t = static_cast<double>(step.t);
  return {.scale = step.scale,
          .clip = step.clip,
          .beta1 = static_cast<float>(step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
          .one_minus_beta2 = static_cast<float>(1.0 - beta2),
          .decay = static_cast<float>(rate * static_cast<double>(step.weight_decay)),
          .step_size = static_cast<float>(rate / (1.0 - std::pow(beta1, t))),
          .root_scale = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, t))),
          .epsilon = step.epsilon,
          .l2 = step.l2,
          .inverse_correction = static_cast<float>(1.0 / (1.0 - std::pow(beta1, t))),
          .weight_decay = step.weight_decay};
}

}  // namespace lockstep::kernels
