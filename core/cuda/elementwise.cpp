// SPDX-License-Identifier: Apache-2.0
// Sums, copies and biases.
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {

void add(Stream& stream, const Tensor& x, const Tensor& y) {
  if (x.size() == 0) return;
  launch(gpu::kAdd, grid_of_elements(x.size()),
         gpu::AddArgs{.x = x.as<float>(), .y = y.as<float>(), .n = x.size()}, stream);
}

void add_scaled(Stream& stream, float factor, const Tensor& x, const Tensor& y) {
  if (x.size() == 0) return;
  launch(
      gpu::kAddScaled, grid_of_elements(x.size()),
      gpu::AddScaledArgs{.factor = factor, .x = x.as<float>(), .y = y.as<float>(), .n = x.size()},
      stream);
}

void fill_zero(Stream& stream, const Tensor& x) {
  if (x.size() == 0) return;
  const auto bytes = static_cast<std::int64_t>(x.bytes());
  launch(gpu::kFillZero, grid_of_elements(ceil_div(bytes, 4)),
         gpu::FillZeroArgs{.x = x.data(), .bytes = bytes, .skip = nullptr}, stream);
}

void copy(Stream& stream, const Tensor& x, const Tensor& y) {
  if (x.size() == 0 || x.data() == y.data()) return;
  const auto bytes = static_cast<std::int64_t>(x.bytes());
  launch(gpu::kCopy, grid_of_elements(ceil_div(bytes, 4)),
         gpu::CopyArgs{.x = x.data(), .y = y.data(), .bytes = bytes}, stream);
}

void add_bias(Stream& stream, const Tensor& bias, const Tensor& y) {
  const Matrix shape = as_matrix(y);
  if (y.size() == 0) return;
  launch(gpu::kAddBias, grid_of_rows(shape),
         gpu::AddBiasArgs{.bias = bias.as<float>(),
                          .y = y.as<float>(),
                          .rows = shape.rows,
                          .columns = shape.columns},
         stream);
}

void bias_backward(Stream& stream, const Tensor& y_grad, const Tensor& bias_grad, bool add) {
  const Matrix shape = as_matrix(y_grad);
  if (bias_grad.size() == 0) return;
  const std::int64_t count = ceil_div(shape.rows, gpu::kGroupRows);
  const Tensor groups(stream.device(), {count, shape.columns}, DType::f32);
  if (count > 0) {
    launch(gpu::kColumnGroups, grid_of_columns(count, shape.columns),
           gpu::ColumnGroupsArgs{.x = y_grad.as<float>(),
                                 .rows = shape.rows,
                                 .columns = shape.columns,
                                 .groups = groups.as<float>()},
           stream);
  }
  launch(gpu::kGroupTotal, grid_of_columns(1, shape.columns),
         gpu::GroupTotalArgs{.groups = groups.as<float>(),
                             .count = count,
                             .columns = shape.columns,
                             .out = bias_grad.as<float>(),
                             .add = add},
         stream);
}

}  // namespace lockstep::kernels::cuda
