// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::kernels {

struct AdamWStep;

/// What one step of AdamW or LAMB needs for each element, computed once in fp64.
struct AdamWFactors {
  float scale;
  float clip;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float decay;       // lr·decay: 1 − lr·decay would be wrong by 3e-8, the same way each step
  float step_size;   // lr / (1 − β1ᵗ)
  float root_scale;  // √(1 − β2ᵗ)
  float epsilon;
  float l2;
  float inverse_correction;  // 1 / (1 − β1ᵗ)
  float weight_decay;
};
AdamWFactors factors_of(const AdamWStep& step);

}  // namespace lockstep::kernels
