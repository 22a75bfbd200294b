// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lockstep::kernels {

/// The arrays of one layer norm call over [rows, columns].
struct LayerNormArrays {
  std::size_t rows;
  std::size_t columns;
  const float* x;
  const float* weight;
  const float* bias;
  float* y;
  float* mean;
  float* rstd;
};

struct LayerNormBackwardArrays {
  std::size_t rows;
  std::size_t columns;
  const float* y_grad;
  const float* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  float* x_grad;
  bool add_x;
  float* group;  // [2 · columns] weight and bias sums of a group of rows
  float* total;  // [2 · columns] the same of all rows
};

}  // namespace lockstep::kernels
