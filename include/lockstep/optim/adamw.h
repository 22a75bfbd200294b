// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/optim/moments.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::optim {

enum class WeightDecay : std::uint8_t {
  decoupled,    // w ← w·(1 − lr·decay) − …: AdamW
  in_gradient,  // L2: decay·w is added to the gradient and enters the moments: Adam
};

/// AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019. The decay is
/// multiplied by the learning rate and never enters the moments. With WeightDecay::in_gradient,
/// Adam: Kingma & Ba, ICLR 2015. State: m and v in f32, zero at first.
class AdamW final : public Optimizer {
 public:
  /// Throws ConfigError that names the key if an option is out of range.
  explicit AdamW(const ParameterSlices& parameters, const MomentOptions& options = {},
                 WeightDecay decay = WeightDecay::decoupled);

 private:
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;
  void bind_rule(StateDict& state) override { bind_moments(slots_, state); }

  MomentOptions options_;
  WeightDecay decay_;
  std::vector<MomentSlot> slots_;
};

}  // namespace lockstep::optim
