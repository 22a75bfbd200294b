// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/optim/decay.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
  std::string no_decay = kDefaultNoDecay;  // patterns of names
};

/// AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019. The decay is
/// multiplied by the learning rate and never enters the moments. State: m and v in f32, zero at
/// first.
class AdamW final : public Optimizer {
 public:
  /// Throws ConfigError that names the key if an option is out of range.
  AdamW(const Parameters& parameters, const AdamWOptions& options = {});
  void bind(StateDict& state) override;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor m;  // the parameter's shape
    Tensor v;
    float weight_decay;
  };
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;

  AdamWOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::optim
