// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/lamb.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "tests/optim/toy.h"

namespace lockstep::optim {
namespace {

// Case P12: rate 0.01, eps 1e-6, no decay.
const MomentOptions kOptions = {
    .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6F, .weight_decay = 0.0F};
constexpr UpdateScale kRate = {.learning_rate = 0.01F};

BucketPlan plan_of(std::int64_t size) { return plan_buckets(std::vector{size}, sizeof(float)); }

TEST(Lamb, MovesALayerThatStartsAtZeroByTheRate) {
  Toy toy({0.0F, 0.0F});
  Lamb lamb(toy.parameters(), plan_of(2), kOptions);
  auto w = toy.step(lamb, {3.0F, 4.0F}, kRate);
  expect_close(w[0], -0.009999997);
  expect_close(w[1], -0.009999998);
  w = toy.step(lamb, {3.0F, 4.0F}, kRate);
  expect_close(w[0], -0.010099997);
  expect_close(w[1], -0.010099997);
}

TEST(Lamb, LeavesALayerWithoutADirectionAlone) {
  Toy toy({3.0F, 4.0F});
  Lamb lamb(toy.parameters(), plan_of(2), kOptions);
  const auto w = toy.step(lamb, {0.0F, 0.0F}, kRate);
  EXPECT_EQ(w[0], 3.0F);
  EXPECT_EQ(w[1], 4.0F);
}

TEST(Lamb, RefusesOptionsOutOfRangeAndAPlanOfOtherParameters) {
  Toy toy({1.0F});
  EXPECT_THROW(Lamb(toy.parameters(), plan_of(1), {.beta1 = 1.0}), ConfigError);
  EXPECT_THROW(Lamb(toy.parameters(), plan_of(1), {.epsilon = 0.0F}), ConfigError);
  EXPECT_THROW(Lamb(toy.parameters(), BucketPlan{}), UsageError);
  EXPECT_THROW(Lamb(toy.parameters(), plan_buckets(std::vector<std::int64_t>{1, 1}, sizeof(float))),
               UsageError);
}

}  // namespace
}  // namespace lockstep::optim
