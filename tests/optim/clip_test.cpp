// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/optim/sgd.h"
#include "tests/optim/toy.h"

namespace lockstep::optim {
namespace {

// Gradients in an arena as a reducer lays them out: backwards, each on a block, zeros behind.
class Arena {
 public:
  explicit Arena(const std::vector<std::vector<float>>& gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      parameters_.push_back(
          std::make_unique<Parameter>(Device{}, "p" + std::to_string(i),
                                      Shape{static_cast<std::int64_t>(gradients[i].size())}));
    }
    plan_.entries.resize(gradients.size());
    for (std::size_t i = gradients.size(); i-- > 0;) {
      const auto size = static_cast<std::int64_t>(gradients[i].size());
      plan_.entries[i] = {.offset = plan_.arena_elements, .size = size};
      plan_.arena_elements += (size + kBlockElements - 1) / kBlockElements * kBlockElements;
    }
    memory_ = Tensor::zeros(Device{}, {plan_.arena_elements}, DType::f32);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::copy(gradients[i].begin(), gradients[i].end(),
                memory_.as<float>() + plan_.entries[i].offset);
    }
  }

  GradientNorm norm() {
    Stream stream{Device{}};
    Parameters borrowed;
    for (const auto& parameter : parameters_) borrowed.push_back(parameter.get());
    return GlobalNorm(borrowed, plan_).measure(stream, memory_);
  }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  BucketPlan plan_;
  Tensor memory_;
};

// What a step uses of `gradient` when clipped to `limit`: plain SGD at rate 1 from w = 0.
std::vector<float> used(const std::vector<float>& gradient, double limit) {
  const GradientNorm norm = Arena({gradient}).norm();
  Toy toy(std::vector<float>(gradient.size(), 0.0F));
  Sgd sgd(toy.parameters());
  auto values = toy.step(sgd, gradient,
                         {.learning_rate = 1.0F, .clip = clip_factor(norm.per_token(1), limit)});
  for (float& value : values) value = 0.0F - value;
  return values;
}

TEST(GlobalNorm, ScalesAGradientThatIsTooLarge) {
  EXPECT_DOUBLE_EQ(Arena({{3.0F, 4.0F}}).norm().of_sums, 5.0);
  const auto clipped = used({3.0F, 4.0F}, 1.0);
  EXPECT_FLOAT_EQ(clipped[0], 0.6F);
  EXPECT_FLOAT_EQ(clipped[1], 0.8F);
}

TEST(GlobalNorm, DoesNotOverflowOnLargeFiniteValues) {
  const std::vector<float> large(100, 1e20F);
  const GradientNorm norm = Arena({large}).norm();
  EXPECT_TRUE(norm.finite());
  EXPECT_NEAR(norm.of_sums, 1e21, 1e15);
  for (const float value : used(large, 1.0)) EXPECT_NEAR(value, 0.1F, 1e-6F);
}

TEST(GlobalNorm, SeesValuesWhoseSquaresVanishInF32) {
  const std::vector<float> small(100, 1e-25F);
  EXPECT_NEAR(Arena({small}).norm().of_sums, 1e-24, 1e-30);
  EXPECT_EQ(used(small, 1.0), small);
}

TEST(GlobalNorm, LeavesAZeroGradientAlone) {
  EXPECT_EQ(Arena({{0.0F, 0.0F}}).norm().of_sums, 0.0);
  EXPECT_EQ(used({0.0F, 0.0F}, 1.0), (std::vector<float>{0.0F, 0.0F}));
}

TEST(GlobalNorm, NamesTheFirstParameterThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> fine(5000, 1.0F);
  EXPECT_EQ(Arena({{1.0F, inf}}).norm().non_finite_parameter, "p0");
  EXPECT_EQ(Arena({{1.0F, nan}}).norm().non_finite_parameter, "p0");
  EXPECT_EQ(Arena({fine, {1.0F, -inf}, fine, {nan}}).norm().non_finite_parameter, "p1");
  std::vector<float> late = fine;
  late.back() = nan;  // in the parameter's second block
  EXPECT_EQ(Arena({fine, fine, late}).norm().non_finite_parameter, "p2");
  EXPECT_FALSE(Arena({{inf, 1.0F}}).norm().finite());
  EXPECT_TRUE(Arena({fine, fine}).norm().finite());
}

TEST(GlobalNorm, AddsOverAllParametersAndDividesByTokens) {
  const GradientNorm norm = Arena({{3.0F}, std::vector<float>(9000, 0.0F), {0.0F, 4.0F}}).norm();
  EXPECT_DOUBLE_EQ(norm.of_sums, 5.0);
  EXPECT_DOUBLE_EQ(norm.per_token(4), 1.25);
  EXPECT_EQ(norm.per_token(0), 0.0);
}

TEST(GlobalNorm, AddsTheBlocksInTheirOrderInF64) {
  std::vector<float> values(3 * kBlockElements);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * 1e3F;
  }
  double exact = 0.0;
  for (const float value : values) exact += static_cast<double>(value) * value;
  const double norm = Arena({values}).norm().of_sums;
  EXPECT_NEAR(norm, std::sqrt(exact), 1e-12 * norm);
  EXPECT_EQ(Arena({values}).norm().of_sums, norm);
}

TEST(GlobalNorm, RefusesAnArenaOfAnotherPlan) {
  Stream stream{Device{}};
  Parameter parameter(Device{}, "p", {1});
  const BucketPlan plan{
      .entries = {{.offset = 0, .size = 1}}, .buckets = {}, .arena_elements = kBlockElements};
  EXPECT_THROW(GlobalNorm({&parameter, &parameter}, plan), UsageError);
  GlobalNorm norm({&parameter}, plan);
  EXPECT_THROW(norm.measure(stream, Tensor::zeros(Device{}, {2 * kBlockElements}, DType::f32)),
               UsageError);
}

TEST(ClipFactor, IsOneWhereNothingIsToBeClipped) {
  EXPECT_EQ(clip_factor(5.0, 0.0), 1.0F);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 1.0F);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25F);
}

}  // namespace
}  // namespace lockstep::optim
