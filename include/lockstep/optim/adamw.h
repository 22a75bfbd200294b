// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/optim/decay.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::optim {

enum class WeightDecay : std::uint8_t {
  decoupled,    // w ← w·(1 − lr·decay) − …: AdamW
  in_gradient,  // L2: decay·w is added to the gradient and enters the moments: Adam
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
  WeightDecay decay = WeightDecay::decoupled;
  std::string no_decay = kDefaultNoDecay;  // patterns of names
};

/// AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019. The decay is
/// multiplied by the learning rate and never enters the moments. With WeightDecay::in_gradient,
/// Adam: Kingma & Ba, ICLR 2015. State: m and v in f32, zero at first.
class AdamW final : public Optimizer {
 public:
  /// Throws ConfigError that names the key if an option is out of range.
  explicit AdamW(const ParameterSlices& parameters, const AdamWOptions& options = {});
  void bind(StateDict& state) override;

 private:
  struct Slot {
    ParameterSlice slice;
    Tensor m;
    Tensor v;
    float weight_decay;
  };
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;

  AdamWOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::optim
