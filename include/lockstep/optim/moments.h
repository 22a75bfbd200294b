// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/core/tensor.h"
#include "lockstep/optim/decay.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::optim {

/// Of the rules that keep two moments: AdamW, Adam and LAMB.
struct MomentOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  float epsilon = 1e-8F;
  float weight_decay = 0.1F;
  std::string no_decay = kDefaultNoDecay;  // patterns of names
};

/// A slice with its two moments, f32 and zero at first.
struct MomentSlot {
  ParameterSlice slice;
  Tensor m;
  Tensor v;
  float weight_decay = 0.0F;  // 0 where no_decay names the parameter
};

/// A slot for each slice. Throws ConfigError that names the key if an option is out of range.
std::vector<MomentSlot> make_moments(const ParameterSlices& parameters,
                                     const MomentOptions& options);
/// Binds StateKind::m and StateKind::v of each.
void bind_moments(const std::vector<MomentSlot>& slots, StateDict& state);

}  // namespace lockstep::optim
