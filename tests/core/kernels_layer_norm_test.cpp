// SPDX-License-Identifier: Apache-2.0
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

constexpr float kEpsilon = 1e-5F;

Values layer_norm(const Values& x, const Values& weight, const Values& bias) {
  const std::size_t columns = weight.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double mean = 0.0;
    for (std::size_t i = 0; i < columns; ++i) mean += x[row + i];
    mean /= static_cast<double>(columns);
    double variance = 0.0;
    for (std::size_t i = 0; i < columns; ++i) variance += std::pow(x[row + i] - mean, 2.0);
    variance /= static_cast<double>(columns);
    const double rstd = 1.0 / std::sqrt(variance + static_cast<double>(kEpsilon));
    for (std::size_t i = 0; i < columns; ++i) {
      y[row + i] = (x[row + i] - mean) * rstd * weight[i] + bias[i];
    }
  }
  return y;
}

class KernelLayerNorm : public KernelTest {
 protected:
  void forward(const Tensor& x) {
    const std::int64_t columns = x.shape().back();
    const std::int64_t rows = columns == 0 ? 0 : x.size() / columns;
    weight_ = random_tensor({columns}, 2);
    bias_ = random_tensor({columns}, 3);
    y_ = nan_tensor(x.shape());
    mean_ = nan_tensor({rows});
    rstd_ = nan_tensor({rows});
    kernels::layer_norm_forward(stream_, x, weight_, bias_, kEpsilon, y_, mean_, rstd_);
    stream_.synchronize();
  }
  Tensor weight_;
  Tensor bias_;
  Tensor y_;
  Tensor mean_;
  Tensor rstd_;
};

TEST_P(KernelLayerNorm, MatchesADoubleLoopForOddWidths) {
  for (const std::int64_t columns : {2, 3, 17, 33, 64, 100}) {
    for (const std::int64_t rows : {0, 1, 5}) {
      const Tensor x = random_tensor({rows, columns}, 1, 2.0);
      forward(x);
      expect_close(y_, layer_norm(values_of(x), values_of(weight_), values_of(bias_)), 2e-6);
    }
  }
}

TEST_P(KernelLayerNorm, OfOneColumnIsTheBias) {
  forward(tensor_of({2, 1}, {5, -3}));
  expect_close(y_, {values_of(bias_)[0], values_of(bias_)[0]}, 0.0);
}

TEST_P(KernelLayerNorm, KeepsTheVarianceOfRowsWithALargeMean) {
  const Tensor x = random_tensor({3, 96}, 1);
  for (std::size_t i = 0; i < count_of(x); ++i) x.as<float>()[i] += 1000.0F;
  forward(x);
  expect_close(y_, layer_norm(values_of(x), values_of(weight_), values_of(bias_)), 2e-4);
}

TEST_P(KernelLayerNorm, BackwardMatchesFiniteDifferencesAndAddsWhereAsked) {
  for (const std::int64_t columns : {3, 17, 33}) {
    const Tensor x = random_tensor({5, columns}, 1, 2.0);
    const Tensor y_grad = random_tensor({5, columns}, 4);
    forward(x);
    const Values at_x = values_of(x);
    const Values at_weight = values_of(weight_);
    const Values at_bias = values_of(bias_);
    const Values upstream = values_of(y_grad);
    const Values x_slope = slope_of(
        [&](const Values& v) { return dot(layer_norm(v, at_weight, at_bias), upstream); }, at_x);
    const Values weight_slope = slope_of(
        [&](const Values& v) { return dot(layer_norm(at_x, v, at_bias), upstream); }, at_weight);
    const Values bias_slope = slope_of(
        [&](const Values& v) { return dot(layer_norm(at_x, at_weight, v), upstream); }, at_bias);

    const kernels::LayerNormGradients fresh = {
        .x = nan_tensor(x.shape()), .weight = nan_tensor({columns}), .bias = nan_tensor({columns})};
    kernels::layer_norm_backward(stream_, y_grad, x, weight_, mean_, rstd_, fresh);
    stream_.synchronize();
    expect_close(fresh.x, x_slope, 2e-5, "x");
    expect_close(fresh.weight, weight_slope, 2e-5, "weight");
    expect_close(fresh.bias, bias_slope, 2e-5, "bias");

    kernels::LayerNormGradients twice = fresh;
    twice.add_x = true;
    twice.add_parameters = true;
    const auto doubled = [](Values values) {
      for (double& value : values) value *= 2.0;
      return values;
    };
    const Values x_twice = doubled(values_of(fresh.x));
    const Values weight_twice = doubled(values_of(fresh.weight));
    const Values bias_twice = doubled(values_of(fresh.bias));
    kernels::layer_norm_backward(stream_, y_grad, x, weight_, mean_, rstd_, twice);
    stream_.synchronize();
    expect_close(twice.x, x_twice, 0.0, "x");
    expect_close(twice.weight, weight_twice, 0.0, "weight");
    expect_close(twice.bias, bias_twice, 0.0, "bias");
  }
}

TEST_P(KernelLayerNorm, BackwardOverManyRowsMatchesADoubleSum) {
  const Tensor x = random_tensor({500, 32}, 1);
  const Tensor y_grad = random_tensor({500, 32}, 2);
  forward(x);
  const kernels::LayerNormGradients gradients = {
      .x = nan_tensor(x.shape()), .weight = nan_tensor({32}), .bias = nan_tensor({32})};
  kernels::layer_norm_backward(stream_, y_grad, x, weight_, mean_, rstd_, gradients);
  stream_.synchronize();
  const Values x_values = values_of(x);
  Values weight_sums(32, 0.0);
  Values bias_sums(32, 0.0);
  for (std::size_t i = 0; i < count_of(x); ++i) {
    const double normal = (x_values[i] - static_cast<double>(mean_.as<float>()[i / 32])) *
                          static_cast<double>(rstd_.as<float>()[i / 32]);
    const double slope = static_cast<double>(y_grad.as<float>()[i]);
    weight_sums[i % 32] += slope * normal;
    bias_sums[i % 32] += slope;
  }
  expect_close(gradients.weight, weight_sums, 1e-6);
  expect_close(gradients.bias, bias_sums, 1e-6);
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelLayerNorm);

}  // namespace
}  // namespace lockstep
