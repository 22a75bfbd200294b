// SPDX-License-Identifier: Apache-2.0
// Faults of other runtimes, from public bug reports, with the right values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "collectives/local/local_group.h"
#include "lockstep/collectives/reducer.h"
#include "lockstep/core/error.h"
#include "tests/support/ranks.h"
#include "tests/support/toy_step.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::give_gradient;
using testing_support::run_ranks;
using testing_support::ToyModel;

// Softmax cross-entropy of logits w for every target: the sum of losses, and of gradients.
struct Sums {
  double loss = 0.0;
  std::array<double, 3> grad{};
};
Sums softmax_sums(const std::array<double, 3>& w, const std::vector<int>& targets) {
  double total = 0.0;
  for (const double x : w) total += std::exp(x);
  Sums sums;
  for (const int target : targets) {
    sums.loss += std::log(total) - w[static_cast<std::size_t>(target)];
    for (std::size_t i = 0; i < 3; ++i) {
      sums.grad[i] += std::exp(w[i]) / total - (static_cast<int>(i) == target ? 1.0 : 0.0);
    }
  }
  return sums;
}

void give_sums(GradientReducer& reducer, Stream& compute, Parameter& w,
               const std::vector<int>& targets) {
  const Sums sums = softmax_sums({0.5, -0.2, 0.1}, targets);
  *reducer.leaf_sums() = {
      .loss = sums.loss, .tokens = static_cast<std::int64_t>(targets.size()), .non_finite = 0};
  give_gradient(compute, w, [sums](std::int64_t i) {
    return static_cast<float>(sums.grad[static_cast<std::size_t>(i)]);
  });
}

// P01: one divisor, the valid tokens of the whole window.
TEST(ReducerCases, P01NormalisesByAllTokensOfTheWindow) {
  const std::vector<std::vector<std::vector<int>>> splits = {
      {{0, 1, 2, 0, 0, 1, 2, 2}},     // one leaf
      {{0, 1, 2}, {0, 0, 1, 2, 2}}};  // two, on one rank or on two
  for (const auto& leaves : splits) {
    for (int ranks = 1; ranks <= static_cast<int>(leaves.size()); ++ranks) {
      run_ranks(ranks, [&](Communicator& group) {
        const ToyModel model({3});
        Stream compute(Device{}, "compute");
        GradientReducer reducer(group, compute, model.parameters(),
                                static_cast<std::int64_t>(leaves.size()));
        reducer.begin_step();
        for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
          reducer.begin_leaf(leaf);
          give_sums(reducer, compute, model[0], leaves[static_cast<std::size_t>(leaf)]);
        }
        const StepTotals totals = reducer.finish();
        const auto tokens = static_cast<double>(totals.tokens);
        EXPECT_EQ(totals.tokens, 8);
        EXPECT_NEAR(totals.loss / tokens, 1.098300043625, 1e-11);
        const double want[] = {0.086487623, -0.020832028, -0.065655595};
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_NEAR(model[0].grad().as<float>()[i] / tokens, want[i], 1e-7);
        }
      });
    }
  }
}

// P17: a branch that only one rank takes, and one that none takes.
TEST(ReducerCases, P17TakesAnUnusedParameterAsZeroAndLeavesOneThatNobodyUses) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({1, 1, 1});
    Stream compute(Device{}, "compute");
    // Buckets of one parameter, so that those of the ranks could be paired wrongly.
    GradientReducer reducer(group, compute, model.parameters(), 2,
                            {.first_bucket_bytes = 1, .bucket_bytes = 1, .unused = Unused::zero});
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step();
      reducer.begin_leaf(group.rank());
      *reducer.leaf_sums() = {.loss = 0.0, .tokens = 1, .non_finite = 0};
      const bool first = group.rank() == 0;
      give_gradient(compute, model[1], [first](std::int64_t) { return first ? 1.0F : 3.0F; });
      if (first) give_gradient(compute, model[0], [](std::int64_t) { return 4.0F; });
      const StepTotals totals = reducer.finish();
      EXPECT_EQ(totals.tokens, 2);
      EXPECT_EQ(*model[0].grad().as<float>(), 4.0F);  // mean 2
      EXPECT_EQ(*model[1].grad().as<float>(), 4.0F);
      EXPECT_TRUE(model[0].is_used());
      EXPECT_TRUE(model[1].is_used());
      EXPECT_FALSE(model[2].is_used());
    }
  });
}

TEST(ReducerCases, P17WithOneRankAndLeavesThatUseDifferentParameters) {
  run_ranks(1, [](Communicator& group) {
    const ToyModel model({1, 1});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 3, {.unused = Unused::zero});
    reducer.begin_step();
    for (std::int64_t leaf = 0; leaf < 3; ++leaf) {
      reducer.begin_leaf(leaf);
      if (leaf == 2) {
        reducer.zero_leaf();  // uses nothing
      } else {
        give_gradient(compute, model[static_cast<std::size_t>(leaf)],
                      [leaf](std::int64_t) { return static_cast<float>(leaf + 5); });
      }
    }
    reducer.finish();
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(*model[p].grad().as<float>(), static_cast<float>(p + 5));
      EXPECT_TRUE(model[p].is_used());
    }
  });
}

// P02: a window without a valid token has gradient 0, loss 0 and no division.
TEST(ReducerCases, P02HasNoNanInAWindowWithoutTokens) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({6});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    reducer.begin_step();
    reducer.begin_leaf(group.rank());
    if (group.rank() == 0) {
      give_gradient(compute, model[0], [](std::int64_t) { return 0.0F; });
    } else {
      reducer.zero_leaf();
    }
    const StepTotals totals = reducer.finish();
    EXPECT_EQ(totals.loss, 0.0);
    EXPECT_EQ(totals.tokens, 0);
    EXPECT_FALSE(totals.non_finite);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(model[0].grad().as<float>()[i], 0.0F);
  });
}

// P17 with unused = error: named on all ranks, and nobody waits for ever. Rank 1 finds it; the
// others hear of it as of any failure, inside finish().
TEST(ReducerCases, P17NamesAnUnusedParameterOnAllRanks) {
  for (const auto reduction : {Reduction::fast, Reduction::invariant}) {
    for (const bool overlap : {true, false}) {
      const auto began = std::chrono::steady_clock::now();
      const auto abort = std::make_shared<AbortSignal>();
      testing_support::run_group(make_local_group(2, {}, abort), abort, [&](Communicator& group) {
        const ToyModel model({1, 1, 1});  // a, b, c
        Stream compute(Device{}, "compute");
        GradientReducer reducer(group, compute, model.parameters(), 4,
                                {.reduction = reduction,
                                 .first_bucket_bytes = 1,
                                 .bucket_bytes = 1,
                                 .overlap = overlap});
        reducer.begin_step();
        for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
          reducer.begin_leaf(leaf);
          for (std::size_t p = 3; p-- > 0;) {
            if (p == 0 && group.rank() == 1) continue;  // a branch that runs on rank 0 alone
            give_gradient(compute, model[p], [](std::int64_t) { return 1.0F; });
          }
        }
        try {
          reducer.finish();
          ADD_FAILURE() << "an unused parameter was accepted";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("parameter p0 got no gradient in leaf 2"));
          EXPECT_EQ(error.outcome(), Outcome::internal);
          EXPECT_EQ(std::string(error.what()).starts_with("rank 1: "), group.rank() == 0);
          abort->raise({.outcome = error.outcome(),
                        .kind = "exception",
                        .origin_rank = group.rank(),
                        .what = error.what(),
                        .hint = {}});
        }
      });
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
    }
  }
}

// P18: accumulation over micro-batches whose gradients come in another order.
TEST(ReducerCases, P18KeepsTheFirstMicroBatchForEveryBucketSize) {
  for (const auto reduction : {Reduction::fast, Reduction::ordered, Reduction::invariant}) {
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{8}, std::size_t{25} << 20}) {
      for (int ranks = 1; ranks <= 2; ++ranks) {
        run_ranks(ranks, [&](Communicator& group) {
          const ToyModel model({1, 1});
          Stream compute(Device{}, "compute");
          GradientReducer reducer(
              group, compute, model.parameters(), 2,
              {.reduction = reduction, .first_bucket_bytes = bytes, .bucket_bytes = bytes});
          const std::array<std::array<float, 2>, 2> grads = {{{1.0F, 2.0F}, {3.0F, 4.0F}}};
          reducer.begin_step();
          for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
            reducer.begin_leaf(leaf);
            const auto& grad = grads[static_cast<std::size_t>(leaf)];
            for (std::size_t n = 0; n < 2; ++n) {
              const std::size_t p = leaf == 0 ? n : 1 - n;  // the order changes
              give_gradient(compute, model[p], [value = grad[p]](std::int64_t) { return value; });
            }
          }
          reducer.finish();
          EXPECT_EQ(*model[0].grad().as<float>() / 2.0F, 2.0F);
          EXPECT_EQ(*model[1].grad().as<float>() / 2.0F, 3.0F);
        });
      }
    }
  }
}

// P19: E = [[1,0],[0,1],[1,1]] as embedding and as head; token 2, target 0.
TEST(ReducerCases, P19AddsBothUsesOfATiedWeightAndReducesItOnce) {
  run_ranks(2, [](Communicator& group) {
    Parameter tied(Device{}, "wte", {3, 2});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, {&tied}, 2);
    const std::array<double, 6> table = {1, 0, 0, 1, 1, 1};
    const std::array<double, 2> hidden = {1, 1};
    std::array<double, 3> logits{};
    for (std::size_t v = 0; v < 3; ++v) {
      logits[v] = table[2 * v] * hidden[0] + table[2 * v + 1] * hidden[1];
    }
    const double sum = std::exp(logits[0]) + std::exp(logits[1]) + std::exp(logits[2]);
    std::array<float, 6> head{};
    std::array<float, 6> embedding{};
    for (std::size_t v = 0; v < 3; ++v) {
      const double slope = std::exp(logits[v]) / sum - (v == 0 ? 1.0 : 0.0);
      for (std::size_t c = 0; c < 2; ++c) {
        head[2 * v + c] = static_cast<float>(slope * hidden[c]);
        embedding[4 + c] += static_cast<float>(slope * table[2 * v + c]);
      }
    }
    reducer.begin_step();
    reducer.begin_leaf(group.rank());
    if (group.rank() == 0) {
      // The head's contribution first, as in backward; one mark at the end.
      const GradientSlot first = tied.next_gradient();
      EXPECT_FALSE(first.add);
      compute.enqueue(
          [first, head] { std::copy(head.begin(), head.end(), first.grad.as<float>()); });
      const GradientSlot second = tied.next_gradient();
      EXPECT_TRUE(second.add);
      compute.enqueue([second, embedding] {
        for (std::size_t i = 0; i < 6; ++i) second.grad.as<float>()[i] += embedding[i];
      });
      tied.mark_ready(compute.record());
    } else {
      reducer.zero_leaf();
    }
    reducer.finish();
    const double want[] = {-0.788058442, -0.788058442, 0.211941558,
                           0.211941558,  0.364175327,  1.364175327};
    double norm = 0.0;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(tied.grad().as<float>()[i], want[i], 1e-6);
      norm += std::pow(static_cast<double>(tied.grad().as<float>()[i]), 2.0);
    }
    EXPECT_NEAR(std::sqrt(norm), 1.823597723, 1e-6);
    EXPECT_EQ(reducer.plan().entries.size(), 1U);
  });
}

// P20: rank 1 runs out of data one step earlier and takes part with zeros.
TEST(ReducerCases, P20GoesOnWhenARankHasFewerBatches) {
  const auto began = std::chrono::steady_clock::now();
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    const std::vector<int> targets = {0, 1, 2, 2};
    const int batches = group.rank() == 0 ? 3 : 2;
    StepTotals totals;
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step();
      reducer.begin_leaf(group.rank());
      if (step < batches) {
        give_sums(reducer, compute, model[0], targets);
      } else {
        reducer.zero_leaf();
      }
      totals = reducer.finish();
      EXPECT_EQ(totals.tokens, step < 2 ? 8 : 4);
    }
    const Sums alone = softmax_sums({0.5, -0.2, 0.1}, targets);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(model[0].grad().as<float>()[i] / static_cast<double>(totals.tokens),
                  alone.grad[i] / 4.0, 1e-7);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
}

}  // namespace
}  // namespace lockstep
