// SPDX-License-Identifier: Apache-2.0
// ZeRO-1 has the bits of whole optimizers, on any number of ranks.
#include "lockstep/optim/shards.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "lockstep/collectives/reducer.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/toy_step.h"

namespace lockstep::optim {
namespace {

using namespace testing_support;

constexpr std::int64_t kLeaves = 6;

// With less than a block, several, none, and more ranks than blocks in a bucket.
const std::vector<std::int64_t> kSizes = {5, 3 * kBlockElements + 17, 0, 9000, kBlockElements};

using Make =
    std::function<std::unique_ptr<Optimizer>(const ParameterSlices&, const BucketPlan&, Shards*)>;

struct Trained {
  std::vector<std::vector<std::uint32_t>> weights;  // by parameter
  std::vector<double> norms;                        // by step
  std::int64_t state_elements = 0;                  // of rank 0
};

// Three steps; what rank 0 has then, after all ranks were found equal.
Trained train(int ranks, const Make& make, Reduction reduction, bool sharded) {
  Trained result;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& group) {
    const ToyModel model(kSizes);
    for (std::size_t p = 0; p < model.size(); ++p) {
      for (std::int64_t i = 0; i < model[p].size(); ++i) {
        model[p].value().as<float>()[i] = toy_gradient(77, p, i);
      }
    }
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), kLeaves,
                            {.reduction = reduction,
                             .first_bucket_bytes = 20'000,
                             .bucket_bytes = 40'000,
                             .scatter = sharded});
    std::unique_ptr<Shards> shards;
    if (sharded) shards = std::make_unique<Shards>(group, model.parameters(), reducer.plan());
    const auto optimizer =
        make(sharded ? shards->slices() : model.parameters(), reducer.plan(), shards.get());
    GlobalNorm norm(model.parameters(), reducer.plan(), shards.get());
    Trained mine;
    for (int step = 0; step < 3; ++step) {
      const StepTotals totals = toy_step(reducer, compute, model);
      const GradientNorm measured = norm.measure(compute, reducer.arena());
      mine.norms.push_back(measured.of_sums);
      optimizer->step(compute, {.learning_rate = 0.01F,
                                .scale = 1.0F / static_cast<float>(totals.tokens),
                                .clip = clip_factor(measured.per_token(totals.tokens), 1.0)});
      if (shards) {
        shards->gather_weights(compute, reducer.arena());
        // As a forward pass does, or at once.
        for (std::size_t p = 0; step % 2 == 0 && p < model.size(); ++p) model[p].value();
        if (step % 2 != 0) shards->settle();
      }
      compute.synchronize();
    }
    for (std::size_t p = 0; p < model.size(); ++p)
      mine.weights.push_back(bits_of(model[p].value()));
    StateDict state;
    optimizer->bind(state);
    for (const StateEntry& entry : state.entries()) {
      EXPECT_EQ(entry.shape(), Shape{kSizes[entry.name.back() - '0']});
      mine.state_elements += entry.tensor.size();
    }
    const std::lock_guard lock(mutex);
    if (result.weights.empty()) result = mine;
    EXPECT_EQ(mine.weights, result.weights) << "rank " << group.rank() << " of " << ranks;
    EXPECT_EQ(mine.norms, result.norms) << "rank " << group.rank() << " of " << ranks;
    if (group.rank() == 0) result.state_elements = mine.state_elements;
  });
  return result;
}

std::unique_ptr<Optimizer> adamw(const ParameterSlices& slices, const BucketPlan& /*plan*/,
                                 Shards* /*shards*/) {
  return std::make_unique<AdamW>(slices);
}
std::unique_ptr<Optimizer> lamb(const ParameterSlices& slices, const BucketPlan& plan,
                                Shards* shards) {
  return std::make_unique<Lamb>(slices, plan, MomentOptions{}, shards);
}
std::unique_ptr<Optimizer> sgd(const ParameterSlices& slices, const BucketPlan& /*plan*/,
                               Shards* /*shards*/) {
  return std::make_unique<Sgd>(slices, SgdOptions{.momentum = 0.9F, .nesterov = true});
}

TEST(Shards, GiveTheBitsOfWholeOptimizersOnAnyNumberOfRanks) {
  for (const Make& make : {Make(adamw), Make(lamb), Make(sgd)}) {
    const Trained whole = train(1, make, Reduction::invariant, false);
    for (int ranks = 1; ranks <= 6; ++ranks) {
      const Trained sharded = train(ranks, make, Reduction::invariant, true);
      EXPECT_EQ(sharded.weights, whole.weights) << ranks << " ranks";
      EXPECT_EQ(sharded.norms, whole.norms) << ranks << " ranks";
    }
  }
}

TEST(Shards, KeepTheRankOrderOfOrderedSums) {
  for (const int ranks : {2, 3}) {
    const Trained whole = train(ranks, adamw, Reduction::ordered, false);
    EXPECT_EQ(train(ranks, adamw, Reduction::ordered, true).weights, whole.weights);
    EXPECT_EQ(train(ranks, adamw, Reduction::fast, true).weights, whole.weights);
  }
}

TEST(Shards, KeepAShareOfTheState) {
  const std::int64_t all = train(1, adamw, Reduction::invariant, false).state_elements;
  EXPECT_EQ(train(1, adamw, Reduction::invariant, true).state_elements, all);
  // Whole blocks: rank 0 of 3 has at most a block a bucket and moment more than its third.
  const std::int64_t third = train(3, adamw, Reduction::invariant, true).state_elements;
  EXPECT_LE(third, all / 3 + 2 * 2 * kBlockElements);
  EXPECT_GT(third, 0);
}

// P61: reduced once a window, not at every micro-batch.
TEST(Shards, P61AddUpAWindowOnce) {
  for (const bool sharded : {false, true}) {
    for (const std::size_t bucket : {std::size_t{4}, std::size_t{25} << 20}) {
      run_ranks(2, [&](Communicator& group) {
        const ToyModel model({1, 1});
        for (std::size_t p = 0; p < 2; ++p) *model[p].value().as<float>() = 0.0F;
        Stream compute(Device{}, "compute");
        GradientReducer reducer(
            group, compute, model.parameters(), 4,
            {.first_bucket_bytes = bucket, .bucket_bytes = bucket, .scatter = sharded});
        Shards shards(group, model.parameters(), reducer.plan());
        const ParameterSlices slices = sharded ? shards.slices() : model.parameters();
        Sgd descent(slices);
        for (int window = 1; window <= 3; ++window) {
          reducer.begin_step();
          for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
            reducer.begin_leaf(leaf);
            *reducer.leaf_sums() = {.loss = 0.0, .tokens = 1, .non_finite = 0};
            for (std::size_t p = 2; p-- > 0;) {
              give_gradient(compute, model[p],
                            [leaf](std::int64_t) { return static_cast<float>(leaf + 1); });
            }
          }
          const StepTotals totals = reducer.finish();
          descent.step(compute,
                       {.learning_rate = 1.0F, .scale = 1.0F / static_cast<float>(totals.tokens)});
          if (sharded) shards.gather_weights(compute, reducer.arena());
          shards.settle();
          compute.synchronize();
          for (std::size_t p = 0; p < 2; ++p) {
            EXPECT_EQ(model[p].value().as<float>()[0], -2.5F * static_cast<float>(window));
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::optim
