// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/optim/moments.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_slice.h"
#include "lockstep/optim/shards.h"

namespace lockstep::optim {

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
  Lamb(const ParameterSlices& parameters, const BucketPlan& plan, const MomentOptions& options = {},
       Shards* shards = nullptr);

 private:
  void update(Stream& stream, const UpdateScale& scale, std::int64_t t) override;
  void bind_rule(StateDict& state) override { bind_moments(slots_, state); }
  /// √Σ over the blocks of parameter `i`.
  double norm_of(const Tensor& by_block, std::size_t i) const;

  MomentOptions options_;
  BucketPlan plan_;
  Shards* shards_;
  std::vector<MomentSlot> slots_;
  Tensor weights_;     // [blocks] f64: Σ w² by arena block
  Tensor directions_;  // the same of the directions
};

}  // namespace lockstep::optim
