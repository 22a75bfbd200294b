// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/optim/decay.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_slice.h"
#include "lockstep/optim/shards.h"

namespace lockstep::optim {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
  std::string no_decay = kDefaultNoDecay;
};

/// LAMB: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
/// ICLR 2020, algorithm 2, with φ the identity. Each parameter moves by the rate times its own norm
/// over that of its direction; by the rate alone where either is 0. Both norms are summed in f64 by
/// block, in block order. State: m and v in f32, zero at first.
///
/// An update replaces the gradients by the directions, and the host waits for the norms. With
/// shards it is collective.
class Lamb final : public Optimizer {
 public:
  /// `plan`: of all parameters. `parameters`: those of `shards`, if there are any. Throws
  /// ConfigError that names the key if an option is out of range.
  Lamb(const ParameterSlices& parameters, const BucketPlan& plan, const LambOptions& options = {},
       const Shards* shards = nullptr);
  void bind(StateDict& state) override;

 private:
  struct Slot {
    ParameterSlice slice;
    Tensor m;
    Tensor v;
    float weight_decay;
    std::size_t first_block;  // of the whole parameter in the arena
    std::size_t end_block;
  };
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;

  LambOptions options_;
  const Shards* shards_;
  std::vector<Slot> slots_;
  std::vector<double> weights_;     // Σ w² by arena block
  std::vector<double> directions_;  // the same of the directions
};

}  // namespace lockstep::optim
