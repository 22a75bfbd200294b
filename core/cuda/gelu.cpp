// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {

void gelu_forward(Stream& stream, const Tensor& x, const Tensor& y) {
  if (x.size() == 0) return;
  launch(gpu::kGelu, grid_of_elements(x.size()),
         gpu::GeluArgs{.x = x.as<float>(), .y = y.as<float>(), .n = x.size()}, stream);
}

void gelu_backward(Stream& stream, const Tensor& x, const Tensor& y_grad, const Tensor& x_grad) {
  if (x.size() == 0) return;
  launch(gpu::kGeluBackward, grid_of_elements(x.size()),
         gpu::GeluBackwardArgs{.x = x.as<float>(),
                               .y_grad = y_grad.as<float>(),
                               .x_grad = x_grad.as<float>(),
                               .n = x.size()},
         stream);
}

void bias_gelu_forward(Stream& stream, const Tensor& bias, const Tensor& x, const Tensor& y) {
  const Matrix shape = as_matrix(x);
  if (x.size() == 0) return;
  launch(gpu::kBiasGelu, grid_of_rows(shape),
         gpu::BiasGeluArgs{.bias = bias.as<float>(),
                           .x = x.as<float>(),
                           .y = y.as<float>(),
                           .rows = shape.rows,
                           .columns = shape.columns},
         stream);
}

}  // namespace lockstep::kernels::cuda
