// SPDX-License-Identifier: Apache-2.0
// The element-wise arithmetic of the CUDA kernels against the kernels of the CPU.
#include "core/functors.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

void expect_same(const Tensor& functor, const Tensor& kernel, const char* what) {
  ASSERT_EQ(functor.size(), kernel.size());
  for (std::int64_t i = 0; i < kernel.size(); ++i) {
    const float mine = functor.as<float>()[i];
    const float theirs = kernel.as<float>()[i];
    if (std::isnan(theirs)) {
      ASSERT_TRUE(std::isnan(mine)) << what << " at " << i << ": " << mine;
    } else if (cpu_fuses()) {
      ASSERT_EQ(kernels::bits_of(mine), kernels::bits_of(theirs))
          << what << " at " << i << ": " << mine << " instead of " << theirs;
    } else {
      ASSERT_NEAR(mine, theirs, 1e-6F * std::max(1.0F, std::abs(theirs))) << what << " at " << i;
    }
  }
}

Tensor copy_of(const Tensor& tensor) {
  return tensor_of(tensor.shape(), {tensor.as<float>(), tensor.as<float>() + tensor.size()});
}

// Random numbers of every size, then what is special.
Tensor inputs() {
  std::mt19937 engine(7);
  std::vector<float> values;
  for (int i = 0; i < 20000; ++i) {
    const double unit = static_cast<double>(engine()) / 2147483648.0 - 1.0;
    values.push_back(static_cast<float>(unit * std::pow(2.0, static_cast<int>(i % 48) - 32)));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {0.0F, 1.0F, 8.999F, 9.0F, 9.5F, 88.0F, 1e-40F, 6.1e-5F, 5.96e-8F, 2.98e-8F,
                        65504.0F, 65519.9F, 65520.0F, 3.3e38F, 3.4e38F, infinity, std::nanf("")}) {
    values.push_back(x);
    values.push_back(-x);
  }
  return tensor_of({static_cast<std::int64_t>(values.size())}, values);
}

class Functors : public testing::Test {
 protected:
  Stream stream_{Device{}};
};

TEST_F(Functors, GiveGeluAndItsSlopeTheBitsOfTheCpuKernels) {
  const Tensor x = inputs();
  const Tensor ones = tensor_of(x.shape(), std::vector<float>(count_of(x), 1.0F));
  const Tensor y = nan_tensor(x.shape());
  const Tensor slope = nan_tensor(x.shape());
  kernels::gelu_forward(stream_, x, y);
  kernels::gelu_backward(stream_, x, ones, slope);
  stream_.synchronize();
  const Tensor my_y = nan_tensor(x.shape());
  const Tensor my_slope = nan_tensor(x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    my_y.as<float>()[i] = kernels::gelu(x.as<float>()[i]);
    my_slope.as<float>()[i] = kernels::gelu_slope(x.as<float>()[i]);
  }
  expect_same(my_y, y, "gelu");
  expect_same(my_slope, slope, "slope");
}

TEST_F(Functors, RoundAndWidenHalvesAsTheCpuDoes) {
  const Tensor x = inputs();
  const std::size_t n = count_of(x);
  std::vector<std::uint16_t> halves(n);
  for (const DType type : {DType::bf16, DType::f16}) {
    kernels::convert_elements(x.data(), DType::f32, halves.data(), type, n);
    for (std::size_t i = 0; i < n; ++i) {
      const float value = x.as<float>()[i];
      const std::uint16_t mine =
          type == DType::bf16 ? kernels::to_bf16(value) : kernels::to_f16(value);
      ASSERT_EQ(mine, halves[i]) << to_string(type) << " of " << value;
    }
    const Tensor all = nan_tensor({65536});
    std::vector<std::uint16_t> every(65536);
    for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint16_t>(i);
    kernels::convert_elements(every.data(), type, all.data(), DType::f32, every.size());
    for (std::size_t i = 0; i < every.size(); ++i) {
      const float mine =
          type == DType::bf16 ? kernels::from_bf16(every[i]) : kernels::from_f16(every[i]);
      ASSERT_EQ(kernels::bits_of(mine), kernels::bits_of(all.as<float>()[i]))
          << to_string(type) << " " << i;
    }
  }
  EXPECT_EQ(kernels::rounded(1.00390625F, kernels::Real::bf16), 1.0F);
  EXPECT_EQ(kernels::rounded(65520.0F, kernels::Real::f16), std::numeric_limits<float>::infinity());
  EXPECT_EQ(kernels::rounded(0.1F, kernels::Real::f32), 0.1F);
}

constexpr std::int64_t kSize = 4099;

class FunctorsOfOptimizers : public Functors {
 protected:
  const Tensor w_ = random_tensor({kSize}, 1);
  const Tensor g_ = random_tensor({kSize}, 2, 30.0);
  const Tensor m_ = random_tensor({kSize}, 3, 0.1);
  const Tensor v_ = copy_of(w_);

  void SetUp() override {
    for (std::int64_t i = 0; i < kSize; ++i) v_.as<float>()[i] *= 0.01F * v_.as<float>()[i];
  }
  kernels::AdamWStep step() const {
    return {.learning_rate = 3e-3F,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .epsilon = 1e-8F,
            .weight_decay = 0.1F,
            .scale = 1.0F / 7.0F,
            .clip = 0.83F,
            .t = 5};
  }
};

TEST_F(FunctorsOfOptimizers, TakeAStepOfAdamWWithTheBitsOfTheCpuKernel) {
  for (const float l2 : {0.0F, 0.05F}) {
    kernels::AdamWStep now = step();
    now.l2 = l2;
    const Tensor w = copy_of(w_), m = copy_of(m_), v = copy_of(v_);
    kernels::adamw(stream_, w, g_, m, v, now);
    stream_.synchronize();
    const Tensor my_w = copy_of(w_), my_m = copy_of(m_), my_v = copy_of(v_);
    const kernels::AdamWFactors factors = kernels::factors_of(now);
    for (std::int64_t i = 0; i < kSize; ++i) {
      kernels::adamw_element(my_w.as<float>()[i], g_.as<float>()[i], my_m.as<float>()[i],
                             my_v.as<float>()[i], factors);
    }
    expect_same(my_w, w, "w");
    expect_same(my_m, m, "m");
    expect_same(my_v, v, "v");
  }
}

TEST_F(FunctorsOfOptimizers, FindTheDirectionOfLambWithTheBitsOfTheCpuKernel) {
  const Tensor g = copy_of(g_), m = copy_of(m_), v = copy_of(v_);
  kernels::lamb_direction(stream_, w_, g, m, v, step());
  stream_.synchronize();
  const Tensor my_g = copy_of(g_), my_m = copy_of(m_), my_v = copy_of(v_);
  const kernels::AdamWFactors factors = kernels::factors_of(step());
  for (std::int64_t i = 0; i < kSize; ++i) {
    kernels::lamb_element(w_.as<float>()[i], my_g.as<float>()[i], my_m.as<float>()[i],
                          my_v.as<float>()[i], factors);
  }
  expect_same(my_g, g, "g");
  expect_same(my_m, m, "m");
  expect_same(my_v, v, "v");
}

TEST_F(FunctorsOfOptimizers, TakeAStepOfSgdWithTheBitsOfTheCpuKernel) {
  for (const float momentum : {0.0F, 0.9F}) {
    for (const bool nesterov : {false, momentum > 0.0F}) {
      for (const std::int64_t t : {1, 2}) {
        const kernels::SgdStep now = {.learning_rate = 0.03F,
                                      .momentum = momentum,
                                      .weight_decay = 0.01F,
                                      .scale = 1.0F / 7.0F,
                                      .clip = 0.83F,
                                      .nesterov = nesterov,
                                      .t = t};
        const Tensor w = copy_of(w_), buffer = copy_of(m_);
        kernels::sgd(stream_, w, g_, momentum == 0.0F ? Tensor() : buffer, now);
        stream_.synchronize();
        const Tensor my_w = copy_of(w_), my_buffer = copy_of(m_);
        const kernels::SgdFactors factors = {.learning_rate = now.learning_rate,
                                             .momentum = now.momentum,
                                             .weight_decay = now.weight_decay,
                                             .scale = now.scale,
                                             .clip = now.clip,
                                             .nesterov = now.nesterov,
                                             .first = now.t == 1};
        for (std::int64_t i = 0; i < kSize; ++i) {
          float& weight = my_w.as<float>()[i];
          if (momentum == 0.0F) {
            kernels::sgd_element(weight, g_.as<float>()[i], factors);
          } else {
            kernels::sgd_element(weight, g_.as<float>()[i], my_buffer.as<float>()[i], factors);
          }
        }
        expect_same(my_w, w, "w");
        expect_same(my_buffer, buffer, "buffer");
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
