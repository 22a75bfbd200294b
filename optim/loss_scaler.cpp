// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/loss_scaler.h"

#include <algorithm>
#include <sstream>

#include "optim/options.h"

namespace lockstep::optim {

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  const auto require_scale = [](const char* key, double value) {
    require_option(value > 0.0 && value <= 0x1p100, key, value, "a number above 0, at most 2^100");
  };
  require_scale("loss_scale.min", options.min);
  require_scale("loss_scale.max", options.max);
  require_option(options.min <= options.init && options.init <= options.max, "loss_scale.init",
                 options.init, "a number from loss_scale.min to loss_scale.max");
  require_option(options.growth_every > 0, "loss_scale.growth_every",
                 static_cast<double>(options.growth_every), "a number of steps above 0");
  state_.scale = options.init;
}

void LossScaler::good_step() noexcept {
  if (++state_.good_steps < options_.growth_every) return;
  state_.good_steps = 0;
  state_.scale = std::min(2.0 * state_.scale, options_.max);
}

void LossScaler::overflow() {
  if (state_.scale <= options_.min) {
    std::ostringstream what;
    what << "gradients are not finite at the smallest loss scale, " << state_.scale;
    throw NumericError(what.str(),
                       "lower optim.lr, look at the samples of this step, or train in bf16 or f32 "
                       "(loss_scale.min says how far the scale may fall)");
  }
  ++state_.skipped;
  state_.good_steps = 0;
  state_.scale = std::max(0.5 * state_.scale, options_.min);
}

void LossScaler::set_state(const LossScaleState& state) {
  if (!(state.scale > 0.0) || !std::isfinite(state.scale) || state.good_steps < 0 ||
      state.skipped < 0) {
    throw UsageError("loss scaler: a scale of " + std::to_string(state.scale),
                     "restore what state() gave");
  }
  state_ = state;
  state_.scale = std::clamp(state.scale, options_.min, options_.max);
}

}  // namespace lockstep::optim
