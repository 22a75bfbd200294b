// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {
namespace {

void add_groups(Stream& stream, const float* groups, std::int64_t count, const Tensor& gradient,
                bool add) {
  launch(gpu::kGroupTotal, grid_of_columns(1, gradient.size()),
         gpu::GroupTotalArgs{.groups = groups,
                             .count = count,
                             .columns = gradient.size(),
                             .out = gradient.as<float>(),
                             .add = add},
         stream);
}

}  // namespace

void layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const Matrix shape = as_matrix(x);
  if (shape.rows == 0) return;
  launch(gpu::kLayerNorm, grid_of_warps(shape.rows),
         gpu::LayerNormArgs{.x = x.as<float>(),
                            .weight = weight.as<float>(),
                            .bias = bias.as<float>(),
                            .epsilon = epsilon,
                            .y = y.as<float>(),
                            .mean = mean.as<float>(),
                            .rstd = rstd.as<float>(),
                            .rows = shape.rows,
                            .columns = shape.columns},
         stream);
}

void layer_norm_backward(Stream& stream, const Tensor& y_grad, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const LayerNormGradients& gradients) {
  const Matrix shape = as_matrix(x);
  if (shape.columns == 0) return;
  const std::int64_t count = ceil_div(shape.rows, gpu::kGroupRows);
  const Tensor groups(stream.device(), {2, count, shape.columns}, DType::f32);
  float* weight_groups = groups.as<float>();
  float* bias_groups = weight_groups + count * shape.columns;
  if (count > 0) {
    // First, since the gradient of x may take the place of y_grad.
    launch(gpu::kLayerNormGroups, grid_of_columns(count, shape.columns),
           gpu::LayerNormGroupsArgs{.y_grad = y_grad.as<float>(),
                                    .x = x.as<float>(),
                                    .mean = mean.as<float>(),
                                    .rstd = rstd.as<float>(),
                                    .weight_groups = weight_groups,
                                    .bias_groups = bias_groups,
                                    .rows = shape.rows,
                                    .columns = shape.columns},
           stream);
    launch(gpu::kLayerNormBackward, grid_of_warps(shape.rows),
           gpu::LayerNormBackwardArgs{.y_grad = y_grad.as<float>(),
                                      .x = x.as<float>(),
                                      .weight = weight.as<float>(),
                                      .mean = mean.as<float>(),
                                      .rstd = rstd.as<float>(),
                                      .x_grad = gradients.x.as<float>(),
                                      .add = gradients.add_x,
                                      .rows = shape.rows,
                                      .columns = shape.columns},
           stream);
  }
  add_groups(stream, weight_groups, count, gradients.weight, gradients.add_parameters);
  add_groups(stream, bias_groups, count, gradients.bias, gradients.add_parameters);
}

}  // namespace lockstep::kernels::cuda
