// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/optim/decay.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::optim {

struct SgdOptions {
  float momentum = 0.0F;
  bool nesterov = false;
  float weight_decay = 0.0F;  // L2: added to the gradient
  std::string no_decay = kDefaultNoDecay;
};

/// Stochastic gradient descent. With momentum the state is one buffer a parameter (StateKind::m),
/// which begins as the first gradient; without, there is none.
class Sgd final : public Optimizer {
 public:
  /// Throws ConfigError that names the key if an option is out of range, or for Nesterov without
  /// momentum.
  explicit Sgd(const ParameterSlices& parameters, const SgdOptions& options = {});

 private:
  struct Slot {
    ParameterSlice slice;
    Tensor buffer;  // undefined without momentum
    float weight_decay;
  };
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;
  void bind_rule(StateDict& state) override;

  SgdOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::optim
