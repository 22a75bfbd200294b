// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <vector>

#include "core/arguments.h"
#include "core/cpu/layer_norm.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/layer_norm.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kGroup = 64;  // rows summed before they join the total: less is lost

// Two passes: the one-pass formula loses the variance of rows with a large mean.
void layer_norm_rows(const LayerNormArrays& a, float epsilon) {
  const float columns = static_cast<float>(a.columns);
  for (std::size_t r = 0; r < a.rows; ++r) {
    const float* x = a.x + r * a.columns;
    float* y = a.y + r * a.columns;
    const float mean =
        sum_terms(a.columns, [=](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, x + i); }) /
        columns;
    const float variance = sum_terms(a.columns,
                                     [=](auto d, std::size_t i) HWY_ATTR {
                                       const auto centred =
                                           hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
                                       return hn::Mul(centred, centred);
                                     }) /
                           columns;
    const float rstd = 1.0F / std::sqrt(variance + epsilon);
    const float* weight = a.weight;
    const float* bias = a.bias;
    for_each_vector(a.columns, [=](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
      const auto normal = hn::Mul(centred, hn::Set(d, rstd));
      hn::StoreU(hn::MulAdd(normal, hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)), d, y + i);
    });
    a.mean[r] = mean;
    a.rstd[r] = rstd;
  }
}

// With n = (x − mean)·rstd and g = dy·weight: dx = rstd·(g − mean(g) − n·mean(g·n)).
void backward_row(const LayerNormBackwardArrays& a, std::size_t r) {
  const std::size_t columns = a.columns;
  const float* x = a.x + r * columns;
  const float* dy = a.y_grad + r * columns;
  const float* weight = a.weight;
  float* dx = a.x_grad + r * columns;
  float* weight_sum = a.group;
  float* bias_sum = a.group + columns;
  const float mean = a.mean[r];
  const float rstd = a.rstd[r];
  const auto normal = [=](auto d, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
  };

  // One pass over the row for both means and both parameter sums: it is bound by memory.
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto g_sums = hn::Zero(d);
  auto gn_sums = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= columns; i += lanes) {
    const auto n = normal(d, i);
    const auto slope = hn::LoadU(d, dy + i);
    const auto g = hn::Mul(slope, hn::LoadU(d, weight + i));
    g_sums = hn::Add(g_sums, g);
    gn_sums = hn::MulAdd(g, n, gn_sums);
    hn::StoreU(hn::MulAdd(slope, n, hn::LoadU(d, weight_sum + i)), d, weight_sum + i);
    hn::StoreU(hn::Add(slope, hn::LoadU(d, bias_sum + i)), d, bias_sum + i);
  }
  float g_sum = hn::GetLane(hn::SumOfLanes(d, g_sums));
  float gn_sum = hn::GetLane(hn::SumOfLanes(d, gn_sums));
  for (; i < columns; ++i) {
    const float n = (x[i] - mean) * rstd;
    const float g = dy[i] * weight[i];
    g_sum += g;
    gn_sum += g * n;
    weight_sum[i] += dy[i] * n;
    bias_sum[i] += dy[i];
  }

  const float g_mean = g_sum / static_cast<float>(columns);
  const float gn_mean = gn_sum / static_cast<float>(columns);
  const auto slope_at = [=](auto tag, std::size_t k) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(tag, dy + k), hn::LoadU(tag, weight + k));
    const auto centred = hn::Sub(g, hn::Set(tag, g_mean));
    return hn::Mul(hn::Set(tag, rstd),
                   hn::NegMulAdd(normal(tag, k), hn::Set(tag, gn_mean), centred));
  };
  if (a.add_x) {
    for_each_vector(columns, [=](auto tag, std::size_t k) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(tag, dx + k), slope_at(tag, k)), tag, dx + k);
    });
  } else {
    for_each_vector(columns, [=](auto tag, std::size_t k)
                                 HWY_ATTR { hn::StoreU(slope_at(tag, k), tag, dx + k); });
  }
}

void layer_norm_backward_rows(const LayerNormBackwardArrays& a) {
  const std::size_t bytes = 2 * a.columns * sizeof(float);
  std::memset(a.total, 0, bytes);
  for (std::size_t begin = 0; begin < a.rows; begin += kGroup) {
    std::memset(a.group, 0, bytes);
    for (std::size_t r = begin; r < a.rows && r < begin + kGroup; ++r) backward_row(a, r);
    for (std::size_t i = 0; i < 2 * a.columns; ++i) a.total[i] += a.group[i];
  }
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(layer_norm_rows);
HWY_EXPORT(layer_norm_backward_rows);

void store_sums(const float* sums, const Tensor& gradient, bool add) {
  float* out = gradient.as<float>();
  const std::size_t n = to_size(gradient.size());
  for (std::size_t i = 0; i < n; ++i) out[i] = add ? out[i] + sums[i] : sums[i];
}

}  // namespace

void cpu::layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight,
                             const Tensor& bias, float epsilon, const Tensor& y, const Tensor& mean,
                             const Tensor& rstd) {
  const Matrix shape = as_matrix(x);
  stream.enqueue([=] {
    HWY_DYNAMIC_DISPATCH(layer_norm_rows)
    ({.rows = to_size(shape.rows),
      .columns = to_size(shape.columns),
      .x = x.as<float>(),
      .weight = weight.as<float>(),
      .bias = bias.as<float>(),
      .y = y.as<float>(),
      .mean = mean.as<float>(),
      .rstd = rstd.as<float>()},
     epsilon);
  });
}

void cpu::layer_norm_backward(Stream& stream, const Tensor& y_grad, const Tensor& x,
                              const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                              const LayerNormGradients& gradients) {
  const Matrix shape = as_matrix(x);
  stream.enqueue([=] {
    if (shape.columns == 0) return;
    const std::size_t columns = to_size(shape.columns);
    std::vector<float> sums(4 * columns);
    float* total = sums.data() + 2 * columns;
    HWY_DYNAMIC_DISPATCH(layer_norm_backward_rows)
    ({.rows = to_size(shape.rows),
      .columns = columns,
      .y_grad = y_grad.as<float>(),
      .x = x.as<float>(),
      .weight = weight.as<float>(),
      .mean = mean.as<float>(),
      .rstd = rstd.as<float>(),
      .x_grad = gradients.x.as<float>(),
      .add_x = gradients.add_x,
      .group = sums.data(),
      .total = total});
    store_sums(total, gradients.weight, gradients.add_parameters);
    store_sums(total + columns, gradients.bias, gradients.add_parameters);
  });
}

}  // namespace lockstep::kernels
#endif
