// SPDX-License-Identifier: Apache-2.0
// Masters of bf16 and f16 parameters, sums of their gradients, and loss scaling.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <mutex>

#include "core/kernels.h"
#include "lockstep/collectives/reducer.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/shards.h"
#include "tests/optim/toy.h"
#include "tests/support/ranks.h"
#include "tests/support/toy_step.h"

namespace lockstep::optim {
namespace {

using namespace testing_support;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void set_values(const Parameter& parameter, const std::vector<float>& values) {
  kernels::convert_elements(values.data(), DType::f32, parameter.value().data(),
                            parameter.value().dtype(), values.size());
}

std::vector<float> values_of(const Parameter& parameter) {
  std::vector<float> values(static_cast<std::size_t>(parameter.size()));
  kernels::convert_elements(parameter.value().data(), parameter.value().dtype(), values.data(),
                            DType::f32, values.size());
  return values;
}

// A step in which every leaf's gradient of every element is gradient(leaf).
StepTotals constant_step(GradientReducer& reducer, Stream& compute, const ToyModel& model,
                         const std::function<float(std::int64_t)>& gradient) {
  reducer.begin_step();
  for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
    reducer.begin_leaf(leaf);
    *reducer.leaf_sums() = {.loss = 0.0, .tokens = 1, .non_finite = 0};
    for (std::size_t p = model.size(); p-- > 0;) {
      give_gradient(compute, model[p],
                    [value = gradient(leaf)](std::int64_t /*i*/) { return value; });
    }
  }
  return reducer.finish();
}

TEST(LossScaler, P07GrowsAfterGoodStepsInARowAndHalvesAtAnOverflow) {
  LossScaler scaler({.growth_every = 3});
  const std::vector<int> overflows = {0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0};
  const std::vector<float> expected = {65536, 65536, 65536, 32768, 32768, 32768, 65536,
                                       65536, 65536, 32768, 16384, 16384, 16384};
  for (std::size_t step = 0; step < overflows.size(); ++step) {
    EXPECT_EQ(scaler.scale(), expected[step]) << "step " << step;
    overflows[step] != 0 ? scaler.overflow() : scaler.good_step();
  }
  EXPECT_EQ(scaler.scale(), 32768.0F);
  EXPECT_EQ(scaler.state().skipped, 3);
}

TEST(LossScaler, P07GoesBelowOneAndEndsAtItsMinimum) {
  LossScaler scaler({.init = 2.0, .min = 0.125});
  for (const float expected : {2.0F, 1.0F, 0.5F, 0.25F}) {
    EXPECT_EQ(scaler.scale(), expected);
    scaler.overflow();
  }
  EXPECT_EQ(scaler.scale(), 0.125F);
  EXPECT_THROW(scaler.overflow(), NumericError);
  EXPECT_EQ(scaler.state().skipped, 4);
}

TEST(LossScaler, StaysBelowItsMaximum) {
  LossScaler scaler({.init = 4.0, .growth_every = 1, .max = 8.0});
  for (int step = 0; step < 3; ++step) scaler.good_step();
  EXPECT_EQ(scaler.scale(), 8.0F);
}

TEST(LossScaler, GoesOnFromItsState) {
  LossScaler before({.growth_every = 3});
  before.overflow();
  before.good_step();
  before.good_step();
  LossScaler after({.growth_every = 3});
  after.set_state(before.state());
  before.good_step();
  after.good_step();
  EXPECT_EQ(after.state(), before.state());
  EXPECT_EQ(after.scale(), 65536.0F);
  EXPECT_THROW(after.set_state({.scale = 0.0}), UsageError);
  EXPECT_THROW(after.set_state({.scale = 1.0, .good_steps = -1}), UsageError);
}

TEST(LossScaler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(LossScaler({.init = 0.0}), ConfigError);
  EXPECT_THROW(LossScaler({.min = 0.0}), ConfigError);
  EXPECT_THROW(LossScaler({.init = 4.0, .max = 2.0}), ConfigError);
  EXPECT_THROW(LossScaler({.growth_every = 0}), ConfigError);
}

// P06: unscaled, then clipped; the norm that is reported is the unscaled one.
TEST(MixedPrecision, P06ClipsWhatIsUnscaled) {
  const std::vector<float> gradients = {3072.0F, 4096.0F};
  const double scale = 1024.0;
  Toy toy({0.0F, 0.0F});
  Sgd descent(toy.parameters());
  const BucketPlan plan = plan_buckets(std::array<std::int64_t, 1>{2}, sizeof(float), {});
  GlobalNorm norm(toy.parameters(), plan);
  const Tensor arena = Tensor::zeros(Device{}, {plan.arena_elements}, DType::f32);
  std::copy(gradients.begin(), gradients.end(), arena.as<float>());
  norm.queue(toy.stream(), arena, {.limit = 1.0, .divisor = scale});
  const auto values = toy.step(
      descent, gradients,
      {.learning_rate = 1.0F, .scale = static_cast<float>(1.0 / scale), .gate = norm.gate()});
  EXPECT_EQ(norm.result().of_sums / scale, 5.0);
  expect_close(values[0], -0.6);
  expect_close(values[1], -0.8);
}

TEST(MixedPrecision, P08SumsGradientsInF32) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](Communicator& group) {
      const ToyModel model({1}, DType::bf16);
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), 1000);
      const auto sum = [&](const std::function<float(std::int64_t)>& gradient) {
        constant_step(reducer, compute, model, gradient);
        return *model[0].grad().as<float>();
      };
      EXPECT_EQ(sum([](std::int64_t) { return 1.0F; }), 1000.0F);
      const float rounded = 0.00099945068359375F;  // 0.001 in bf16
      EXPECT_NEAR(sum([&](std::int64_t) { return rounded; }), 0.99945068F, 1e-6F);
    });
  }
  // Rounded on request alone: 257 is no bf16.
  for (const auto& [wire, expected] : {std::pair(DType::f32, 257.0F), {DType::bf16, 256.0F}}) {
    run_ranks(2, [&](Communicator& group) {
      const ToyModel model({1}, DType::bf16);
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), 2,
                              {.reduction = Reduction::ordered, .wire = wire});
      constant_step(reducer, compute, model,
                    [](std::int64_t leaf) { return leaf == 0 ? 256.0F : 1.0F; });
      EXPECT_EQ(*model[0].grad().as<float>(), expected);
    });
  }
}

// P09: one rank's infinity withholds the whole update on both.
TEST(MixedPrecision, P09SkipsAStepAsAWhole) {
  run_ranks(2, [&](Communicator& group) {
    const ToyModel model({1});
    *model[0].value().as<float>() = 2.0F;
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    GlobalNorm norm(model.parameters(), reducer.plan());
    AdamW adamw(model.parameters(), {.weight_decay = 0.1F});
    LossScaler scaler({});
    StateDict state;
    adamw.bind(state);
    const auto step = [&](const std::function<float(std::int64_t)>& gradient) {
      const auto scale = static_cast<double>(scaler.scale());
      const StepTotals totals = constant_step(reducer, compute, model, [&](std::int64_t leaf) {
        return gradient(leaf) * static_cast<float>(scale);
      });
      if (!norm.measure(compute, reducer.arena()).finite()) return scaler.overflow();
      adamw.step(compute,
                 {.learning_rate = 0.1F,
                  .scale = static_cast<float>(1.0 / (static_cast<double>(totals.tokens) * scale))});
      compute.synchronize();
      scaler.good_step();
    };
    step([](std::int64_t leaf) { return leaf == 0 ? 1.0F : kInfinity; });
    EXPECT_EQ(*model[0].value().as<float>(), 2.0F);
    for (const StateEntry& entry : state.entries()) EXPECT_EQ(*entry.tensor.as<float>(), 0.0F);
    EXPECT_EQ(adamw.updates(), 0);
    EXPECT_EQ(scaler.state(), (LossScaleState{.scale = 32768.0, .good_steps = 0, .skipped = 1}));
    step([](std::int64_t) { return 1.0F; });
    EXPECT_NEAR(*model[0].value().as<float>(), 1.880000001, 1e-6);
    EXPECT_EQ(adamw.updates(), 1);
  });
}

// P62: no scale in bf16, and gradients do not pile up.
TEST(MixedPrecision, P62Bf16HasNoScaleAndFreshGradients) {
  for (const bool sharded : {false, true}) {
    run_ranks(2, [&](Communicator& group) {
      const ToyModel model({1}, DType::bf16);
      set_values(model[0], {0.0F});
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), 2, {.scatter = sharded});
      std::unique_ptr<Shards> shards;
      if (sharded) shards = std::make_unique<Shards>(group, model.parameters(), reducer.plan());
      GlobalNorm norm(model.parameters(), reducer.plan(), shards.get());
      Sgd descent(sharded ? shards->slices() : model.parameters());
      for (const float expected : {-1.0F, -2.0F}) {
        const StepTotals totals =
            constant_step(reducer, compute, model, [](std::int64_t) { return 1.0F; });
        const GradientNorm measured = norm.measure(compute, reducer.arena());
        EXPECT_EQ(measured.per_token(totals.tokens), 1.0);
        descent.step(compute,
                     {.learning_rate = 1.0F, .scale = 1.0F / static_cast<float>(totals.tokens)});
        if (shards) {
          shards->gather_weights(compute, reducer.arena());
          shards->settle();
        }
        compute.synchronize();
        EXPECT_EQ(values_of(model[0]), std::vector<float>{expected});
      }
    });
  }
}

TEST(MixedPrecision, AMasterKeepsUpdatesThatTheValueCannotShow) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Stream stream{Device{}};
    Parameter parameter(Device{}, "w", {1}, type);
    set_values(parameter, {1.0F});
    Sgd descent({&parameter});
    Tensor grad(Device{}, {1}, DType::f32);
    *grad.as<float>() = 1.0F;
    parameter.begin_pass(grad, false);
    for (int step = 0; step < 1000; ++step) descent.step(stream, {.learning_rate = 0x1p-17F});
    stream.synchronize();
    const float wanted = 1.0F - 1000.0F * 0x1p-17F;
    EXPECT_NEAR(values_of(parameter)[0], wanted, type == DType::bf16 ? 2e-3F : 3e-4F);
    StateDict state;
    descent.bind(state);
    ASSERT_EQ(state.entries().size(), 1U);
    EXPECT_EQ(state.entries()[0].kind, StateKind::master);
    EXPECT_EQ(*state.entries()[0].tensor.as<float>(), wanted);
  }
}

TEST(MixedPrecision, MastersFollowValuesThatTheCallerSets) {
  Parameter parameter(Device{}, "w", {2}, DType::bf16);
  set_values(parameter, {3.0F, 4.0F});
  AdamW adamw({&parameter});
  StateDict state;
  adamw.bind(state);
  const float* master = state.find("w", StateKind::master)->tensor.as<float>();
  EXPECT_EQ(master[1], 4.0F);
  set_values(parameter, {5.0F, 6.0F});
  adamw.read_values();
  EXPECT_EQ(master[0], 5.0F);
  EXPECT_EQ(master[1], 6.0F);
}

using Make =
    std::function<std::unique_ptr<Optimizer>(const ParameterSlices&, const BucketPlan&, Shards*)>;

std::vector<std::vector<float>> train(int ranks, DType type, const Make& make, bool sharded) {
  std::vector<std::vector<float>> weights;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& group) {
    const ToyModel model({5, 3 * kBlockElements + 17, 0, 9000}, type);
    for (std::size_t p = 0; p < model.size(); ++p) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < model[p].size(); ++i) {
        values.push_back(std::ldexp(toy_gradient(77, p, i), -16));
      }
      set_values(model[p], values);
    }
    Stream compute(Device{}, "compute");
    GradientReducer reducer(
        group, compute, model.parameters(), 6,
        {.first_bucket_bytes = 20'000, .bucket_bytes = 40'000, .scatter = sharded});
    std::unique_ptr<Shards> shards;
    if (sharded) shards = std::make_unique<Shards>(group, model.parameters(), reducer.plan());
    const auto optimizer =
        make(sharded ? shards->slices() : model.parameters(), reducer.plan(), shards.get());
    for (int step = 0; step < 3; ++step) {
      const StepTotals totals = toy_step(reducer, compute, model);
      optimizer->step(compute,
                      {.learning_rate = 0.01F, .scale = 1.0F / static_cast<float>(totals.tokens)});
      if (shards) {
        shards->gather_weights(compute, reducer.arena());
        // As a forward pass does, or at once.
        for (std::size_t p = 0; step % 2 == 0 && p < model.size(); ++p) model[p].value();
        if (step % 2 != 0) shards->settle();
      }
      compute.synchronize();
    }
    std::vector<std::vector<float>> mine;
    for (std::size_t p = 0; p < model.size(); ++p) mine.push_back(values_of(model[p]));
    const std::lock_guard lock(mutex);
    if (weights.empty()) weights = mine;
    EXPECT_EQ(mine, weights) << "rank " << group.rank() << " of " << ranks;
  });
  return weights;
}

TEST(MixedPrecision, ShardsGiveTheBitsOfWholeOptimizers) {
  const Make adamw = [](const ParameterSlices& slices, const BucketPlan& /*plan*/,
                        Shards* /*shards*/) { return std::make_unique<AdamW>(slices); };
  const Make lamb = [](const ParameterSlices& slices, const BucketPlan& plan, Shards* shards) {
    return std::make_unique<Lamb>(slices, plan, MomentOptions{}, shards);
  };
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Make& make : {adamw, lamb}) {
      const auto whole = train(1, type, make, false);
      for (int ranks = 1; ranks <= 6; ++ranks) {
        EXPECT_EQ(train(ranks, type, make, true), whole) << ranks << " ranks";
      }
    }
  }
}

enum class Decided : std::uint8_t { by_host, by_device };

// Three steps, in the second of which one leaf's gradient is infinite; all state in the end.
std::vector<std::vector<float>> train_over_an_infinity(const Make& make, bool sharded,
                                                       Decided decided) {
  std::vector<std::vector<float>> all;
  std::mutex mutex;
  run_ranks(2, [&](Communicator& group) {
    const ToyModel model({5, kBlockElements + 17, 9000}, DType::bf16);
    for (std::size_t p = 0; p < model.size(); ++p) {
      set_values(model[p], std::vector<float>(static_cast<std::size_t>(model[p].size()), 2.0F));
    }
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 4, {.scatter = sharded});
    std::unique_ptr<Shards> shards;
    if (sharded) shards = std::make_unique<Shards>(group, model.parameters(), reducer.plan());
    GlobalNorm norm(model.parameters(), reducer.plan(), shards.get());
    const auto optimizer =
        make(sharded ? shards->slices() : model.parameters(), reducer.plan(), shards.get());
    StateDict state;
    optimizer->bind(state);
    for (int step = 0; step < 3; ++step) {
      const StepTotals totals = constant_step(reducer, compute, model, [&](std::int64_t leaf) {
        return step == 1 && leaf == 3 ? kInfinity : static_cast<float>(step + 1) * 10.0F;
      });
      const auto tokens = static_cast<double>(totals.tokens);
      UpdateScale scale{.learning_rate = 0.01F, .scale = static_cast<float>(1.0 / tokens)};
      if (decided == Decided::by_host) {
        const GradientNorm measured = norm.measure(compute, reducer.arena());
        EXPECT_EQ(measured.finite(), step != 1);
        if (!measured.finite()) continue;
        scale.clip = clip_factor(measured.per_token(totals.tokens), 1.0);
        EXPECT_LT(scale.clip, 1.0F);
        optimizer->step(compute, scale);
      } else {
        norm.queue(compute, reducer.arena(), {.limit = 1.0, .divisor = tokens});
        scale.gate = norm.gate();
        optimizer->step(compute, scale);
        compute.synchronize();
        EXPECT_EQ(norm.result().non_finite_parameter, step == 1 ? "p0" : "");
        if (step == 1) optimizer->set_updates(optimizer->updates() - 1);
      }
      if (shards) {
        shards->gather_weights(compute, reducer.arena());
        shards->settle();
      }
      compute.synchronize();
    }
    EXPECT_EQ(optimizer->updates(), 2);
    std::vector<std::vector<float>> mine;
    for (std::size_t p = 0; p < model.size(); ++p) mine.push_back(values_of(model[p]));
    for (const StateEntry& entry : state.entries()) {
      mine.emplace_back(entry.tensor.as<float>(), entry.tensor.as<float>() + entry.tensor.size());
    }
    const std::lock_guard lock(mutex);
    if (group.rank() == 0) all = mine;
  });
  return all;
}

// P09 without a word of the host: the norm withholds the update, moments and masters included.
TEST(MixedPrecision, TheDeviceDecidesAsTheHostWould) {
  const Make adamw = [](const ParameterSlices& slices, const BucketPlan& /*plan*/,
                        Shards* /*shards*/) { return std::make_unique<AdamW>(slices); };
  const Make lamb = [](const ParameterSlices& slices, const BucketPlan& plan, Shards* shards) {
    return std::make_unique<Lamb>(slices, plan, MomentOptions{}, shards);
  };
  const Make sgd = [](const ParameterSlices& slices, const BucketPlan& /*plan*/,
                      Shards* /*shards*/) {
    return std::make_unique<Sgd>(slices, SgdOptions{.momentum = 0.9F});
  };
  for (const Make& make : {adamw, lamb, sgd}) {
    for (const bool sharded : {false, true}) {
      const auto expected = train_over_an_infinity(make, sharded, Decided::by_host);
      EXPECT_EQ(train_over_an_infinity(make, sharded, Decided::by_device), expected);
      // The last master, of which rank 0 has a share in any case.
      EXPECT_NE(expected[5], std::vector<float>(expected[5].size(), 2.0F));
    }
  }
}

TEST(MixedPrecision, ALossThatIsNotFiniteWithholdsTheUpdate) {
  Toy toy({2.0F});
  Sgd descent(toy.parameters());
  const BucketPlan plan = plan_buckets(std::array<std::int64_t, 1>{1}, sizeof(float), {});
  GlobalNorm norm(toy.parameters(), plan);
  const Tensor arena = Tensor::zeros(Device{}, {plan.arena_elements}, DType::f32);
  *arena.as<float>() = 1.0F;
  for (const bool withhold : {true, false}) {
    norm.queue(toy.stream(), arena, {.withhold = withhold});
    const auto values = toy.step(descent, {1.0F}, {.learning_rate = 1.0F, .gate = norm.gate()});
    EXPECT_EQ(values[0], withhold ? 2.0F : 1.0F);
    EXPECT_TRUE(norm.result().finite());
  }
}

}  // namespace
}  // namespace lockstep::optim
