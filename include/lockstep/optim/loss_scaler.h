// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::optim {

struct LossScaleOptions {
  double init = 65536.0;
  std::int64_t growth_every = 2000;  // good steps in a row
  double min = 0x1p-24;              // below 1: some models need it
  double max = 0x1p24;
};

/// Where dynamic loss scaling stands; to be saved and restored with the optimizer's state.
struct LossScaleState {
  double scale = 1.0;
  std::int64_t good_steps = 0;  // in a row
  std::int64_t skipped = 0;     // updates withheld so far
  bool operator==(const LossScaleState&) const = default;
};

/// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2):
/// small gradients of f16 passes would become zero, so the loss's gradient is multiplied by a scale
/// that doubles after `growth_every` good steps in a row and halves when a gradient overflows. An
/// update with a gradient that is not finite is withheld whole.
///
/// The caller passes what is known of all ranks, so that the scale is the same on each.
class LossScaler {
 public:
  /// Throws ConfigError that names the key if an option is out of range.
  explicit LossScaler(const LossScaleOptions& options);

  /// Of the step that comes; f32, since it multiplies gradients.
  float scale() const noexcept { return static_cast<float>(state_.scale); }
  /// A step's gradients were all finite.
  void good_step() noexcept;
  /// A step's gradients were not: its update is withheld. Throws NumericError if the scale is at
  /// its minimum already, since then it is not the scale.
  void overflow();

  const LossScaleState& state() const noexcept { return state_; }
  /// Throws UsageError for a scale that is not positive or a negative number.
  void set_state(const LossScaleState& state);

 private:
  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace lockstep::optim
