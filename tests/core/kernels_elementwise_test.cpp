// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

class KernelElementwise : public KernelTest {};

const std::vector<std::int64_t> kWidths = {0, 1, 3, 17, 33, 128};

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) { return (gelu(x + kStep) - gelu(x - kStep)) / (2.0 * kStep); }

TEST_P(KernelElementwise, AddsCopiesAndZeroesEveryElement) {
  for (const std::int64_t n : kWidths) {
    const Tensor x = random_tensor({n}, 1);
    const Tensor y = random_tensor({n}, 2);
    Values wanted = values_of(y);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += values_of(x)[i];
    kernels::add(stream_, x, y);
    stream_.synchronize();
    expect_close(y, wanted, 1e-7);
    kernels::copy(stream_, x, y);
    stream_.synchronize();
    expect_close(y, values_of(x), 0.0);
    kernels::fill_zero(stream_, y);
    stream_.synchronize();
    expect_close(y, Values(wanted.size(), 0.0), 0.0);
  }
}

TEST_P(KernelElementwise, CopiesAnyType) {
  const Tensor x = indices_of({3}, {7, -1, 1 << 30});
  const Tensor y = indices_of({3}, {0, 0, 0});
  kernels::copy(stream_, x, y);
  stream_.synchronize();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(y.as<std::int32_t>()[i], x.as<std::int32_t>()[i]);
  }
}

TEST_P(KernelElementwise, AddsTheBiasToEveryRowAndSumsItsGradientOverRows) {
  for (const std::int64_t columns : kWidths) {
    for (const std::int64_t rows : {0, 1, 5, 131}) {
      const Tensor bias = random_tensor({columns}, 1);
      const Tensor y = random_tensor({rows, columns}, 2);
      const Tensor bias_grad = random_tensor({columns}, 3);
      const Values biases = values_of(bias);
      Values sums(count_of(bias), 0.0);
      Values biased = values_of(y);
      for (std::size_t i = 0; i < biased.size(); ++i) {
        sums[i % count_of(bias)] += biased[i];
        biased[i] += biases[i % count_of(bias)];
      }
      Values added = values_of(bias_grad);
      for (std::size_t i = 0; i < added.size(); ++i) added[i] += sums[i];
      kernels::bias_backward(stream_, y, bias_grad, true);
      stream_.synchronize();
      expect_close(bias_grad, added, 3e-6);
      kernels::bias_backward(stream_, y, bias_grad, false);
      kernels::add_bias(stream_, bias, y);
      stream_.synchronize();
      expect_close(bias_grad, sums, 3e-6);
      expect_close(y, biased, 1e-7);
    }
  }
}

TEST_P(KernelElementwise, GeluMatchesTheTanhFormInF64) {
  for (const std::int64_t n : kWidths) {
    const Tensor x = random_tensor({n}, 4, 6.0);
    const Tensor y_grad = random_tensor({n}, 5);
    const Tensor y = nan_tensor({n});
    Values wanted = values_of(x);
    Values wanted_grad = values_of(y_grad);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted_grad[i] *= gelu_slope(wanted[i]);
      wanted[i] = gelu(wanted[i]);
    }
    kernels::gelu_forward(stream_, x, y);
    kernels::gelu_backward(stream_, x, y_grad, y_grad);  // in place
    stream_.synchronize();
    expect_close(y, wanted, 3e-7);
    expect_close(y_grad, wanted_grad, 1e-6);
  }
}

TEST_P(KernelElementwise, GeluIsExactFarFromZeroAndKeepsRelativePrecisionBelowIt) {
  const Tensor x = tensor_of({5}, {1e20F, -1e20F, 30.0F, -5.0F, 0.0F});
  const Tensor ones = tensor_of({5}, {1, 1, 1, 1, 1});
  const Tensor y = nan_tensor({5});
  const Tensor slope = nan_tensor({5});
  kernels::gelu_forward(stream_, x, y);
  kernels::gelu_backward(stream_, x, ones, slope);
  stream_.synchronize();
  EXPECT_EQ(y.as<float>()[0], 1e20F);
  EXPECT_NEAR(y.as<float>()[1], 0.0F, 1e-7F);
  EXPECT_EQ(y.as<float>()[2], 30.0F);
  // x·σ(2u) in f64; 0.5·(1 + tanh u) in f32 has no correct digit here.
  EXPECT_NEAR(y.as<float>()[3] / -2.2917972e-07F, 1.0F, 1e-5F);
  EXPECT_EQ(y.as<float>()[4], 0.0F);
  EXPECT_EQ(slope.as<float>()[0], 1.0F);
  EXPECT_NEAR(slope.as<float>()[1], 0.0F, 1e-20F);
  EXPECT_EQ(slope.as<float>()[4], 0.5F);
}

TEST_P(KernelElementwise, GeluHandsANanOn) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{16}}) {
    const Tensor x = random_tensor({17}, 1);
    x.as<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    const Tensor y = random_tensor({17}, 2);
    const Tensor slope = random_tensor({17}, 3);
    kernels::gelu_forward(stream_, x, y);
    kernels::gelu_backward(stream_, x, slope, slope);
    stream_.synchronize();
    EXPECT_TRUE(std::isnan(y.as<float>()[at]));
    EXPECT_TRUE(std::isnan(slope.as<float>()[at]));
    EXPECT_FALSE(std::isnan(y.as<float>()[at == 0 ? 1 : 0]));
  }
}

TEST_P(KernelElementwise, FusedBiasAndGeluEqualTheTwoKernelsBitForBit) {
  const Tensor bias = random_tensor({33}, 1);
  const Tensor x = random_tensor({5, 33}, 2, 3.0);
  const Tensor apart = random_tensor({5, 33}, 2, 3.0);
  const Tensor fused = nan_tensor({5, 33});
  const Tensor two_kernels = nan_tensor({5, 33});
  kernels::bias_gelu_forward(stream_, bias, x, fused);
  kernels::add_bias(stream_, bias, apart);
  kernels::gelu_forward(stream_, apart, two_kernels);
  stream_.synchronize();
  expect_close(x, values_of(apart), 0.0);
  expect_close(fused, values_of(two_kernels), 0.0);
}

TEST_P(KernelElementwise, NamesTheInstructionSetInUse) {
  EXPECT_STREQ(kernels::instruction_set(), hwy::TargetName(GetParam()));
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelElementwise);

}  // namespace
}  // namespace lockstep
