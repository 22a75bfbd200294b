// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/runtime/gpt2.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

constexpr Gpt2Config kTiny{.layers = 2, .heads = 2, .hidden = 16, .vocab = 20, .context = 8};

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    model_.initialize(1);
    // The initial weights are near zero, and a tied head then repeats its input: spread them.
    unsigned seed = 7;
    model_.visit([&](Parameter& parameter) {
      if (parameter.name().find(".ln_") == std::string::npos) {
        fill_random(values_of(parameter.value()), seed++);
      }
    });
  }

  std::vector<std::int32_t> generated(const std::vector<std::int32_t>& prompt, std::int64_t count,
                                      const SamplingOptions& options) {
    std::vector<std::int32_t> tokens;
    generate(model_, stream_, kTiny.context, prompt, count, options,
             [&](std::int32_t token) { tokens.push_back(token); });
    return tokens;
  }

  Stream stream_{Device{}};
  Gpt2 model_{stream_, kTiny};
};

TEST_F(GenerateTest, TakesTheArgmaxOfTheForwardPassAtTemperatureZero) {
  std::vector<std::int32_t> text = {3, 1, 4};
  const std::vector<std::int32_t> greedy = generated(text, 5, {.temperature = 0.0});
  text.insert(text.end(), greedy.begin(), greedy.end());
  ASSERT_EQ(text.size(), 8U);
  // One pass over all of it predicts each of them, as attention is causal.
  const Tensor logits = model_.forward(tensor_of({1, 8}, text));
  stream_.synchronize();
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    const float* row = logits.as<float>() + (2 + i) * 20;
    EXPECT_EQ(std::max_element(row, row + 20) - row, greedy[i]) << i;
  }
  EXPECT_GT(std::set<std::int32_t>(greedy.begin(), greedy.end()).size(), 1U) << "a dull model";
}

TEST_F(GenerateTest, SeesTheLastTokensOfALongText) {
  const std::vector<std::int32_t> tail = {9, 2, 6, 5, 3, 5, 8, 9};
  std::vector<std::int32_t> text = {3, 1, 4, 1, 5};
  text.insert(text.end(), tail.begin(), tail.end());
  const SamplingOptions greedy{.temperature = 0.0};
  EXPECT_EQ(generated(text, 4, greedy), generated(tail, 4, greedy));
}

TEST_F(GenerateTest, RepeatsItselfForASeedAndDiffersForAnother) {
  const SamplingOptions seven{.temperature = 50.0, .seed = 7};
  const SamplingOptions eight{.temperature = 50.0, .seed = 8};
  const auto first = generated({1}, 30, seven);
  EXPECT_EQ(generated({1}, 30, seven), first);
  EXPECT_NE(generated({1}, 30, eight), first);
  // The first tokens do not depend on how many are asked for.
  const auto some = generated({1}, 10, seven);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), first.begin()));
}

TEST(ChooseToken, DrawsEachTokenAsOftenAsItsProbabilitySays) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), -100.0F, std::log(5.0F)};
  std::vector<int> counts(4);
  for (std::uint64_t i = 0; i < 80000; ++i) {
    ++counts[static_cast<std::size_t>(choose_token(logits, {.seed = 3}, i))];
  }
  EXPECT_NEAR(counts[0], 10000, 400);
  EXPECT_NEAR(counts[1], 20000, 500);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 50000, 600);
}

TEST(ChooseToken, StaysAmongTheLargestOnes) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F, 2.0F};
  std::set<std::int32_t> three;
  std::set<std::int32_t> one;
  std::set<std::int32_t> below;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    three.insert(choose_token(logits, {.temperature = 10.0, .top_k = 3}, i));
    one.insert(choose_token(logits, {.temperature = 10.0, .top_k = 1}, i));
    below.insert(choose_token(logits, {.temperature = 10.0, .vocabulary = 2}, i));
  }
  EXPECT_THAT(three, testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(one, testing::ElementsAre(1));
  EXPECT_THAT(below, testing::ElementsAre(0, 1));
}

TEST(ChooseToken, RefusesWhatMeansNothing) {
  const std::vector<float> logits = {1.0F, 2.0F};
  EXPECT_THROW(choose_token(logits, {.temperature = -1.0}, 0), ConfigError);
  EXPECT_THROW(choose_token(logits, {.temperature = NAN}, 0), ConfigError);
  EXPECT_THROW(choose_token(logits, {.top_k = -1}, 0), ConfigError);
  EXPECT_EQ(choose_token(logits, {.top_k = 99}, 0), choose_token(logits, {}, 0));
  const std::vector<float> broken = {1.0F, std::numeric_limits<float>::infinity()};
  EXPECT_THROW(choose_token(broken, {}, 0), NumericError);
}

}  // namespace
}  // namespace lockstep::nn
