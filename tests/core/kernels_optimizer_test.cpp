// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

class KernelOptimizer : public KernelTest {
 protected:
  // The weight after each gradient.
  Values adamw(float w, const std::vector<float>& gradients, kernels::AdamWStep step) {
    const Tensor weight = tensor_of({1}, {w});
    m_ = tensor_of({1}, {0});
    v_ = tensor_of({1}, {0});
    Values weights;
    for (const float gradient : gradients) {
      kernels::adamw(stream_, weight, tensor_of({1}, {gradient}), m_, v_, step);
      stream_.synchronize();
      weights.push_back(values_of(weight)[0]);
      step.t += 1;
    }
    return weights;
  }
  Values sgd(const std::vector<float>& gradients, kernels::SgdStep step) {
    const Tensor weight = tensor_of({1}, {1});
    const Tensor buffer = step.momentum == 0.0F ? Tensor() : nan_tensor({1});
    Values weights;
    for (const float gradient : gradients) {
      kernels::sgd(stream_, weight, tensor_of({1}, {gradient}), buffer, step);
      stream_.synchronize();
      weights.push_back(values_of(weight)[0]);
      step.t += 1;
    }
    return weights;
  }
  Tensor m_;
  Tensor v_;
};

constexpr std::int64_t kSize = 67;

void expect_values(const Values& actual, const Values& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(actual[i] / wanted[i], 1.0, 1e-6) << "step " << i + 1;
  }
}

TEST_P(KernelOptimizer, AdamPutsEpsilonBehindTheBiasCorrection) {  // P10
  const kernels::AdamWStep step = {.learning_rate = 0.1F, .beta1 = 0.9, .beta2 = 0.999};
  kernels::AdamWStep wide = step;
  wide.epsilon = 0.1F;
  expect_values(adamw(1, {1, -2, 0.5F}, wide), {0.909090909, 0.943523858, 0.956232195});
  expect_values(adamw(1, {1, -2, 0.5F}, step), {0.900000001, 0.936610353, 0.950279420});
  EXPECT_NEAR(values_of(m_)[0] / -0.049, 1.0, 1e-6);
  EXPECT_NEAR(values_of(v_)[0] / 0.005244001, 1.0, 1e-6);
  // P14: the fourth update of a run that kept its state and count.
  EXPECT_NEAR(adamw(1, {1, -2, 0.5F, 1}, step).back(), 0.937273686456, 1e-6);
}

TEST_P(KernelOptimizer, AdamWDecaysApartFromTheGradient) {  // P11
  expect_values(adamw(2, {1, -2, 0.5F},
                      {.learning_rate = 0.1F, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1F}),
                {1.880000001, 1.897810353, 1.892501316});
}

TEST_P(KernelOptimizer, ScalesTheGradientBeforeItIsUsed) {
  const kernels::AdamWStep plain = {.learning_rate = 0.1F, .epsilon = 0.1F};
  kernels::AdamWStep scaled = plain;
  scaled.scale = 0.25F;
  scaled.clip = 0.5F;
  expect_values(adamw(1, {8, -16, 4}, scaled), adamw(1, {1, -2, 0.5F}, plain));
  expect_values(sgd({8, 16}, {.learning_rate = 0.1F, .scale = 0.25F, .clip = 0.5F}),
                sgd({1, 2}, {.learning_rate = 0.1F}));
}

TEST_P(KernelOptimizer, SgdStartsItsBufferWithTheRawGradient) {  // P13
  const kernels::SgdStep step = {.learning_rate = 0.1F, .momentum = 0.9F};
  expect_values(sgd({1, 1, 1}, step), {0.9, 0.71, 0.439});
  kernels::SgdStep nesterov = step;
  nesterov.nesterov = true;
  expect_values(sgd({1, 1, 1}, nesterov), {0.81, 0.539, 0.1951});
  kernels::SgdStep decayed = step;
  decayed.weight_decay = 0.01F;
  expect_values(sgd({1, 1, 1}, decayed), {0.899, 0.707201, 0.433874699});
}

TEST_P(KernelOptimizer, SgdDecaysWithoutMomentum) {  // P13
  expect_values(sgd({0, 0}, {.learning_rate = 0.1F, .weight_decay = 0.01F}), {0.999, 0.998001});
}

TEST_P(KernelOptimizer, BitsDoNotDependOnWhereArraysAreCut) {
  const auto cut_at = [&](const std::vector<std::int64_t>& cuts) {
    const Tensor w = random_tensor({kSize}, 1);
    const Tensor g = random_tensor({kSize}, 2);
    const Tensor m = random_tensor({kSize}, 3);
    const Tensor v = random_tensor({kSize}, 4);
    const Tensor buffer = random_tensor({kSize}, 5);
    for (std::size_t i = 0; i < count_of(v); ++i) v.as<float>()[i] = std::abs(v.as<float>()[i]);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto piece = [&](const Tensor& x) { return x.rows(cuts[i], cuts[i + 1]); };
      kernels::adamw(stream_, piece(w), piece(g), piece(m), piece(v),
                     {.learning_rate = 0.01F, .weight_decay = 0.1F, .t = 7});
      kernels::sgd(stream_, piece(w), piece(g), piece(buffer),
                   {.learning_rate = 0.3F,
                    .momentum = 0.7F,
                    .weight_decay = 0.1F,
                    .nesterov = true,
                    .t = 2});
    }
    stream_.synchronize();
    return values_of(w);
  };
  const Values whole = cut_at({0, kSize});
  EXPECT_EQ(cut_at({0, 1, 10, 43, kSize}), whole);
  EXPECT_EQ(cut_at({0, 33, 33, kSize}), whole);
}

TEST_P(KernelOptimizer, SquareSumsNeitherOverflowNorVanish) {  // P05
  struct Case {
    float value;
    double norm;
  };
  for (const Case& c : {Case{1e20F, 1e21}, Case{1e-25F, 1e-24}, Case{0.0F, 0.0}}) {
    const Tensor x = tensor_of({100}, std::vector<float>(100, c.value));
    double sum = -1.0;
    kernels::block_square_sums(stream_, x, 4096, &sum);
    stream_.synchronize();
    EXPECT_NEAR(std::sqrt(sum), c.norm, 1e-6 * c.norm);
  }
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    double sum = 0.0;
    kernels::block_square_sums(stream_, tensor_of({2}, {1, bad}), 4096, &sum);
    stream_.synchronize();
    EXPECT_FALSE(std::isfinite(sum));
  }
}

TEST_P(KernelOptimizer, SquareSumsOfABlockDependOnThatBlockAlone) {
  for (const std::int64_t size : {0, 1, 3, 17, 33, 64, 100}) {
    const Tensor x = random_tensor({size}, 1);
    std::vector<double> sums(static_cast<std::size_t>((size + 32) / 33) + 1, -7.0);
    kernels::block_square_sums(stream_, x, 33, sums.data());
    stream_.synchronize();
    EXPECT_EQ(sums.back(), -7.0) << "one sum too many";
    for (std::int64_t begin = 0; begin < size; begin += 33) {
      const Tensor block = x.rows(begin, std::min(size, begin + 33));
      const double wanted = dot(values_of(block), values_of(block));
      EXPECT_NEAR(sums[static_cast<std::size_t>(begin / 33)], wanted, 1e-13 * wanted);
      double alone = 0.0;
      kernels::block_square_sums(stream_, block, 33, &alone);
      stream_.synchronize();
      EXPECT_EQ(sums[static_cast<std::size_t>(begin / 33)], alone);
    }
  }
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelOptimizer);

}  // namespace
}  // namespace lockstep
