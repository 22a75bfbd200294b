// SPDX-License-Identifier: Apache-2.0
// Twins of the kernels of column_sums.cu, layer_norm.cu and cross_entropy.cu.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/fakes/cuda/twins.h"

namespace lockstep::cuda {
namespace {

using namespace fake;

// Calls op(group, begin, rows) for each group of rows.
template <typename Op>
void for_each_group(std::int64_t rows, const Op& op) {
  for (std::int64_t begin = 0; begin < rows; begin += kGroupRows) {
    op(begin / kGroupRows, begin, std::min(kGroupRows, rows - begin));
  }
}

void twin_column_groups(const ColumnGroupsArgs& a) {
  on_cpu([&](Stream& s) {
    for_each_group(a.rows, [&](std::int64_t group, std::int64_t begin, std::int64_t rows) {
      kernels::bias_backward(s, tensor_at(a.x + begin * a.columns, {rows, a.columns}),
                             tensor_at(a.groups + group * a.columns, {a.columns}), false);
    });
  });
}

void twin_group_total(const GroupTotalArgs& a) {
  for (std::int64_t column = 0; column < a.columns; ++column) {
    float total = 0.0F;
    for (std::int64_t i = 0; i < a.count; ++i) total += a.groups[i * a.columns + column];
    a.out[column] = a.add ? a.out[column] + total : total;
  }
}

void twin_layer_norm(const LayerNormArgs& a) {
  const Shape shape = {a.rows, a.columns};
  on_cpu([&](Stream& s) {
    kernels::layer_norm_forward(s, tensor_at(a.x, shape), tensor_at(a.weight, {a.columns}),
                                tensor_at(a.bias, {a.columns}), a.epsilon, tensor_at(a.y, shape),
                                tensor_at(a.mean, {a.rows}), tensor_at(a.rstd, {a.rows}));
  });
}

void twin_layer_norm_backward(const LayerNormBackwardArgs& a) {
  const Shape shape = {a.rows, a.columns};
  const Tensor unused(Device{}, {a.columns}, DType::f32);
  on_cpu([&](Stream& s) {
    kernels::layer_norm_backward(
        s, tensor_at(a.y_grad, shape), tensor_at(a.x, shape), tensor_at(a.weight, {a.columns}),
        tensor_at(a.mean, {a.rows}), tensor_at(a.rstd, {a.rows}),
        {.x = tensor_at(a.x_grad, shape), .weight = unused, .bias = unused, .add_x = a.add});
  });
}

void twin_layer_norm_groups(const LayerNormGroupsArgs& a) {
  const Tensor weight = Tensor::zeros(Device{}, {a.columns}, DType::f32);  // of x's gradient alone
  const Tensor unused(Device{}, {kGroupRows, a.columns}, DType::f32);
  on_cpu([&](Stream& s) {
    for_each_group(a.rows, [&](std::int64_t group, std::int64_t begin, std::int64_t rows) {
      const Shape shape = {rows, a.columns};
      kernels::layer_norm_backward(
          s, tensor_at(a.y_grad + begin * a.columns, shape),
          tensor_at(a.x + begin * a.columns, shape), weight, tensor_at(a.mean + begin, {rows}),
          tensor_at(a.rstd + begin, {rows}),
          {.x = unused.rows(0, rows),
           .weight = tensor_at(a.weight_groups + group * a.columns, {a.columns}),
           .bias = tensor_at(a.bias_groups + group * a.columns, {a.columns})});
    });
  });
}

void twin_cross_entropy(const CrossEntropyArgs& a) {
  if (skipped(a.skip)) return;
  const kernels::CrossEntropyOptions options = {
      .vocabulary = a.vocabulary, .smoothing = a.smoothing, .gradient_scale = a.gradient_scale};
  std::vector<kernels::LossSums> sums(static_cast<std::size_t>(a.rows));
  on_cpu([&](Stream& s) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const auto call = a.gradient ? kernels::cross_entropy : kernels::cross_entropy_loss;
      call(s, tensor_at(a.logits + row * a.columns, {1, a.columns}),
           tensor_at(a.targets + row, {1}, DType::i32), options,
           &sums[static_cast<std::size_t>(row)]);
    }
  });
  for (std::int64_t row = 0; row < a.rows; ++row) {
    a.losses[row] = static_cast<float>(sums[static_cast<std::size_t>(row)].loss);
  }
}

void twin_loss_sums(const LossSumsArgs& a) {
  if (skipped(a.skip)) return;
  kernels::LossSums sums;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    if (a.targets[row] == a.ignored) continue;
    sums.loss += static_cast<double>(a.losses[row]);
    sums.tokens += 1;
    if (!std::isfinite(a.losses[row])) sums.non_finite += 1;
  }
  *a.loss = sums.loss;
  *a.tokens = sums.tokens;
  *a.non_finite = sums.non_finite;
}

}  // namespace

const Kernel<ColumnGroupsArgs> kColumnGroups = twin("column_groups", twin_column_groups);
const Kernel<GroupTotalArgs> kGroupTotal = twin("group_total", twin_group_total);
const Kernel<LayerNormArgs> kLayerNorm = twin("layer_norm", twin_layer_norm);
const Kernel<LayerNormBackwardArgs> kLayerNormBackward =
    twin("layer_norm_backward", twin_layer_norm_backward);
const Kernel<LayerNormGroupsArgs> kLayerNormGroups =
    twin("layer_norm_groups", twin_layer_norm_groups);
const Kernel<CrossEntropyArgs> kCrossEntropy = twin("cross_entropy", twin_cross_entropy);
const Kernel<LossSumsArgs> kLossSums = twin("loss_sums", twin_loss_sums);

}  // namespace lockstep::cuda
