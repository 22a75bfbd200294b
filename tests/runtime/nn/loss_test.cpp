// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/loss.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

using Targets = std::vector<std::int32_t>;

class Loss : public testing::Test {
 protected:
  Stream stream_{Device{}};
  LeafSums sums_;
};

TEST_F(Loss, IsASumThatMicroBatchesOfAnyLengthShare) {
  // Every token has the logits w; P01 of the reference cases.
  const std::vector<float> w = {0.5F, -0.2F, 0.1F};
  const std::array<Targets, 2> micro_batches = {Targets{0, 1, 2}, Targets{0, 0, 1, 2, 2}};
  const Tensor w_grad = Tensor::zeros(Device{}, {3}, DType::f32);
  CrossEntropy loss(stream_);
  std::array<LeafSums, 2> sums;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const auto rows = static_cast<std::int64_t>(micro_batches[i].size());
    std::vector<float> logits;
    for (std::int64_t row = 0; row < rows; ++row) logits.insert(logits.end(), w.begin(), w.end());
    const Tensor grad = loss.forward_backward(tensor_of({rows, 3}, logits),
                                              tensor_of({rows}, micro_batches[i]), &sums[i]);
    kernels::bias_backward(stream_, grad, w_grad, true);
  }
  stream_.synchronize();
  EXPECT_NEAR(sums[0].loss, 3.419900130874, 3e-6);
  EXPECT_NEAR(sums[1].loss, 5.366500218124, 5e-6);
  EXPECT_EQ(sums[0].tokens + sums[1].tokens, 8);
  EXPECT_NEAR((sums[0].loss + sums[1].loss) / 8, 1.098300043625, 1e-6);
  const std::array<double, 3> expected = {0.086487623, -0.020832028, -0.065655595};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(values_of(w_grad)[i] / 8, expected.at(i), 1e-7) << i;
  }
}

TEST_F(Loss, IsZeroWithoutAValidTarget) {
  CrossEntropy loss(stream_);
  const Tensor logits = tensor_of({2, 3}, std::vector<float>{1, 2, 3, 0, 0, 0});
  const Tensor grad = loss.forward_backward(logits, tensor_of({2}, Targets{-100, -100}), &sums_);
  stream_.synchronize();
  EXPECT_EQ(sums_.loss, 0.0);
  EXPECT_EQ(sums_.tokens, 0);
  EXPECT_EQ(sums_.non_finite, 0);
  EXPECT_EQ(copy_of(grad), std::vector<float>(6, 0.0F));
}

TEST_F(Loss, SmoothsInTrainingAndNotInEvaluation) {
  CrossEntropy loss(stream_, {.smoothing = 0.1F});
  const std::vector<float> row = {2, 1, 0, -1};
  const Tensor grad =
      loss.forward_backward(tensor_of({1, 4}, row), tensor_of({1}, Targets{0}), &sums_);
  stream_.synchronize();
  EXPECT_NEAR(sums_.loss, 0.590189698561, 6e-7);
  const std::array<double, 4> expected = {-0.28108574, 0.211882818, 0.062144319, 0.007058603};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values_of(grad)[i], expected.at(i), 3e-7) << i;

  loss.evaluate(tensor_of({1, 4}, row), tensor_of({1}, Targets{0}), &sums_);
  stream_.synchronize();
  EXPECT_NEAR(sums_.loss, 0.440189698561, 5e-7);
  EXPECT_EQ(sums_.tokens, 1);
}

TEST_F(Loss, GivesPaddingColumnsNoProbability) {
  CrossEntropy loss(stream_, {.vocabulary = 5});
  const Tensor logits = tensor_of({1, 6}, std::vector<float>{1, 2, 3, 4, 5, 9});
  const Tensor grad = loss.forward_backward(logits, tensor_of({1}, Targets{4}), &sums_);
  stream_.synchronize();
  EXPECT_NEAR(sums_.loss, 0.451914395938, 5e-7);
  EXPECT_EQ(values_of(grad)[5], 0.0F);
}

TEST_F(Loss, TakesTargetsOfABatch) {
  CrossEntropy loss(stream_);
  loss.evaluate(random_tensor({4, 5}, 1), tensor_of({2, 2}, Targets{0, 1, 4, -100}), &sums_);
  stream_.synchronize();
  EXPECT_EQ(sums_.tokens, 3);
}

TEST_F(Loss, FailsTheStreamForATargetOutsideTheVocabulary) {
  CrossEntropy loss(stream_);
  loss.forward_backward(random_tensor({2, 4}, 1), tensor_of({2}, Targets{1, 4}), &sums_);
  try {
    stream_.synchronize();
    FAIL() << "target 4 of 4 was accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find('4'), std::string::npos) << error.what();
  }
}

TEST_F(Loss, OutlivesItsObject) {
  auto loss = std::make_unique<CrossEntropy>(stream_);
  const Event gate = Event::make();
  stream_.wait(gate);
  loss->evaluate(random_tensor({4, 5}, 1), tensor_of({4}, Targets{0, 1, 4, 2}), &sums_);
  loss.reset();
  gate.reach();
  stream_.synchronize();
  EXPECT_EQ(sums_.tokens, 4);
}

TEST_F(Loss, RefusesASmoothingThatIsNoFraction) {
  EXPECT_THROW(CrossEntropy(stream_, {.smoothing = 1.0F}), ConfigError);
  EXPECT_THROW(CrossEntropy(stream_, {.smoothing = -0.1F}), ConfigError);
}

}  // namespace
}  // namespace lockstep::nn
