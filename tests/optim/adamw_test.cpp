// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/adamw.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "lockstep/core/error.h"
#include "tests/optim/toy.h"

namespace lockstep::optim {
namespace {

constexpr double kBeta2 = 0.999;

// Updates of w = 1 by gradients 1, −2, 0.5 at rate 0.1.
std::vector<float> three_updates(Toy& toy, AdamW& adamw) {
  std::vector<float> values;
  for (const float gradient : {1.0F, -2.0F, 0.5F}) {
    values.push_back(toy.step(adamw, {gradient}, {.learning_rate = 0.1F})[0]);
  }
  return values;
}

const Tensor& state_of(const StateDict& state, StateKind kind) {
  const StateEntry* entry = state.find("w", kind);
  if (!entry) throw std::runtime_error("no such state");
  return entry->tensor;
}

TEST(AdamW, AddsEpsilonAfterBothBiasCorrections) {
  Toy toy({1.0F});
  AdamW adamw(toy.parameters(), {.beta2 = kBeta2, .epsilon = 0.1F, .weight_decay = 0.0F});
  const auto w = three_updates(toy, adamw);
  expect_close(w[0], 0.909090909);
  expect_close(w[1], 0.943523858);
  expect_close(w[2], 0.956232195);
}

TEST(AdamW, KeepsTheMomentsOfTheDefinition) {
  Toy toy({1.0F});
  AdamW adamw(toy.parameters(), {.beta2 = kBeta2, .weight_decay = 0.0F});
  const auto w = three_updates(toy, adamw);
  expect_close(w[0], 0.900000001);
  expect_close(w[1], 0.936610353);
  expect_close(w[2], 0.950279420);
  StateDict state;
  adamw.bind(state);
  expect_close(state_of(state, StateKind::m).as<float>()[0], -0.049);
  expect_close(state_of(state, StateKind::v).as<float>()[0], 0.005244001);
}

TEST(AdamW, DecaysByTheRateApartFromTheMoments) {
  Toy toy({2.0F});
  AdamW adamw(toy.parameters(), {.beta2 = kBeta2, .weight_decay = 0.1F});
  const auto w = three_updates(toy, adamw);
  expect_close(w[0], 1.880000001);
  expect_close(w[1], 1.897810353);
  expect_close(w[2], 1.892501316);
}

TEST(AdamW, PutsDecayIntoTheGradientAsAdamDoes) {
  Toy toy({2.0F});
  AdamW adam(toy.parameters(), {.beta2 = kBeta2, .weight_decay = 0.1F}, WeightDecay::in_gradient);
  const auto w = three_updates(toy, adam);
  expect_close(w[0], 1.900000001);
  expect_close(w[1], 1.925017878);
  expect_close(w[2], 1.924022332);
}

TEST(AdamW, LeavesWhatNoDecayNamesUndecayed) {
  Toy bias({2.0F}, "transformer.h.0.attn.c_attn.bias");
  AdamW adamw(bias.parameters(), {.weight_decay = 0.1F});
  EXPECT_EQ(bias.step(adamw, {0.0F}, {.learning_rate = 0.1F})[0], 2.0F);

  Toy listed({2.0F}, "transformer.h.0.attn.c_attn.bias");
  AdamW replaced(listed.parameters(), {.weight_decay = 0.1F, .no_decay = "*.wpe.weight"});
  expect_close(listed.step(replaced, {0.0F}, {.learning_rate = 0.1F})[0], 1.98);
}

TEST(AdamW, ScalesTheSumsByTokensAndClip) {
  Toy sums({1.0F});
  AdamW scaled(sums.parameters(), {.epsilon = 0.1F, .weight_decay = 0.0F});
  Toy mean({1.0F});
  AdamW plain(mean.parameters(), {.epsilon = 0.1F, .weight_decay = 0.0F});
  const float a =
      sums.step(scaled, {24.0F}, {.learning_rate = 0.1F, .scale = 0.125F, .clip = 0.5F})[0];
  const float b = mean.step(plain, {1.5F}, {.learning_rate = 0.1F})[0];
  EXPECT_EQ(a, b);
}

TEST(AdamW, GoesOnFromASavedStateBitForBit) {
  Toy toy({1.0F});
  AdamW adamw(toy.parameters(), {.beta2 = kBeta2, .weight_decay = 0.0F});
  three_updates(toy, adamw);
  EXPECT_EQ(adamw.updates(), 3);

  Toy resumed(toy.values());
  AdamW other(resumed.parameters(), {.beta2 = kBeta2, .weight_decay = 0.0F});
  StateDict from;
  StateDict into;
  adamw.bind(from);
  other.bind(into);
  for (const StateKind kind : {StateKind::m, StateKind::v}) {
    std::memcpy(state_of(into, kind).data(), state_of(from, kind).data(), sizeof(float));
  }
  other.set_updates(adamw.updates());

  const float uninterrupted = toy.step(adamw, {1.0F}, {.learning_rate = 0.1F})[0];
  EXPECT_EQ(resumed.step(other, {1.0F}, {.learning_rate = 0.1F})[0], uninterrupted);
  expect_close(uninterrupted, 0.937273686456);
  EXPECT_EQ(other.updates(), 4);
  for (const StateKind kind : {StateKind::m, StateKind::v}) {
    EXPECT_EQ(state_of(into, kind).as<float>()[0], state_of(from, kind).as<float>()[0]);
  }
}

TEST(AdamW, BindsMomentsUnderTheParametersName) {
  Toy toy({1.0F, 2.0F}, "transformer.wte.weight");
  AdamW adamw(toy.parameters());
  StateDict state;
  adamw.bind(state);
  ASSERT_EQ(state.entries().size(), 2U);
  for (const StateEntry& entry : state.entries()) {
    EXPECT_EQ(entry.name, "transformer.wte.weight");
    EXPECT_EQ(entry.tensor.shape(), (Shape{2}));
    EXPECT_EQ(entry.tensor.as<float>()[1], 0.0F);
  }
}

TEST(AdamW, NamesTheOptionThatIsOutOfRange) {
  const auto message = [](const MomentOptions& options) -> std::string {
    try {
      const AdamW adamw({}, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.beta1 = 1.0}), "optim.beta1 = 1");
  EXPECT_EQ(message({.beta2 = -0.5}), "optim.beta2 = -0.5");
  EXPECT_EQ(message({.epsilon = 0.0F}), "optim.eps = 0");
  EXPECT_EQ(message({.weight_decay = -1.0F}), "optim.weight_decay = -1");
  EXPECT_EQ(message({.weight_decay = std::numeric_limits<float>::infinity()}),
            "optim.weight_decay = inf");
}

TEST(Optimizer, RefusesANegativeCount) {
  AdamW adamw({});
  EXPECT_THROW(adamw.set_updates(-1), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
