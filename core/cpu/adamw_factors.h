// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::kernels {

/// What one AdamW step needs for each element, computed once in fp64.
struct AdamWFactors {
  float scale;
  float clip;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float decay;       // 1 − lr·decay
  float step_size;   // lr / (1 − β1ᵗ)
  float root_scale;  // √(1 − β2ᵗ)
  float epsilon;
};

}  // namespace lockstep::kernels
