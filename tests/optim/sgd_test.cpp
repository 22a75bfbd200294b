// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/sgd.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "tests/optim/toy.h"

namespace lockstep::optim {
namespace {

// w = 1, rate 0.1, gradients 1, 1, 1.
std::vector<float> three_updates(const SgdOptions& options) {
  Toy toy({1.0F});
  Sgd sgd(toy.parameters(), options);
  std::vector<float> values(3);
  for (float& value : values) value = toy.step(sgd, {1.0F}, {.learning_rate = 0.1F})[0];
  return values;
}

void expect_values(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) expect_close(actual[i], expected[i]);
}

TEST(Sgd, BeginsItsMomentumWithTheRawGradient) {
  expect_values(three_updates({.momentum = 0.9F}), {0.9, 0.71, 0.439});
}

TEST(Sgd, LooksAheadWithNesterov) {
  expect_values(three_updates({.momentum = 0.9F, .nesterov = true}), {0.81, 0.539, 0.1951});
}

TEST(Sgd, PutsDecayIntoTheMomentum) {
  expect_values(three_updates({.momentum = 0.9F, .weight_decay = 0.01F}),
                {0.899, 0.707201, 0.433874699});
}

// P17: w = 1, rate 0.1, decay 0.1, mean gradient 2, and none at all.
TEST(Sgd, P17LeavesAParameterThatNobodyUsedAlone) {
  Toy used({1.0F});
  Sgd moves(used.parameters(), {.weight_decay = 0.1F});
  expect_close(used.step(moves, {4.0F}, {.learning_rate = 0.1F, .scale = 0.5F})[0], 0.79);
  Toy unused({1.0F});
  unused.parameters()[0]->set_used(false);
  Sgd stays(unused.parameters(), {.momentum = 0.9F, .weight_decay = 0.1F});
  EXPECT_EQ(unused.step(stays, {0.0F}, {.learning_rate = 0.1F})[0], 1.0F);
}

TEST(Sgd, DecaysWithoutMomentum) {
  Toy toy({1.0F});
  Sgd sgd(toy.parameters(), {.weight_decay = 0.01F});
  expect_close(toy.step(sgd, {0.0F}, {.learning_rate = 0.1F})[0], 0.999);
  expect_close(toy.step(sgd, {0.0F}, {.learning_rate = 0.1F})[0], 0.998001);
}

TEST(Sgd, LeavesWhatNoDecayNamesUndecayed) {
  Toy toy({1.0F}, "transformer.ln_f.weight");
  Sgd sgd(toy.parameters(), {.weight_decay = 0.5F});
  EXPECT_EQ(toy.step(sgd, {0.0F}, {.learning_rate = 0.1F})[0], 1.0F);
}

TEST(Sgd, KeepsStateOnlyWithMomentum) {
  Toy toy({1.0F});
  StateDict none;
  Sgd(toy.parameters()).bind(none);
  EXPECT_TRUE(none.entries().empty());

  StateDict state;
  Sgd(toy.parameters(), {.momentum = 0.9F}).bind(state);
  ASSERT_EQ(state.entries().size(), 1U);
  EXPECT_EQ(state.entries()[0].kind, StateKind::m);
  EXPECT_EQ(state.entries()[0].name, "w");
}

TEST(Sgd, RefusesOptionsThatContradictEachOther) {
  EXPECT_THROW(Sgd({}, {.nesterov = true}), ConfigError);
  EXPECT_THROW(Sgd({}, {.momentum = 1.0F}), ConfigError);
  EXPECT_THROW(Sgd({}, {.weight_decay = -0.1F}), ConfigError);
}

}  // namespace
}  // namespace lockstep::optim
