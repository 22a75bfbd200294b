// SPDX-License-Identifier: Apache-2.0
// The bits of reduced gradients.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <tuple>

#include "core/kernels.h"
#include "lockstep/collectives/reducer.h"
#include "lockstep/core/error.h"
#include "tests/support/ranks.h"
#include "tests/support/shm_ranks.h"
#include "tests/support/toy_step.h"
#include "tests/support/tree_sum.h"

namespace lockstep {
namespace {

using testing_support::bits_of;
using testing_support::run_ranks;
using testing_support::toy_gradient;
using testing_support::toy_step;
using testing_support::ToyModel;
using testing_support::tree_sum;

const std::vector<std::int64_t> kSizes = {5, 4100, 1, 4096, 0, 900};

ReducerOptions small_buckets(Reduction reduction) {
  return {.reduction = reduction,
          .first_bucket_bytes = 16 << 10,
          .bucket_bytes = 32 << 10,
          .overlap = true};
}

// The gradient that `sum` makes of all leaves' values, as the reducer must lay it out.
template <typename Sum>
std::vector<std::uint32_t> expected_arena(const BucketPlan& plan, std::int64_t leaves, Sum sum) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(plan.arena_elements));
  std::vector<float> values(static_cast<std::size_t>(leaves));
  for (std::size_t p = 0; p < kSizes.size(); ++p) {
    for (std::int64_t i = 0; i < kSizes[p]; ++i) {
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
        values[static_cast<std::size_t>(leaf)] = toy_gradient(leaf, p, i);
      }
      bits[static_cast<std::size_t>(plan.entries[p].offset + i)] =
          std::bit_cast<std::uint32_t>(sum(values));
    }
  }
  return bits;
}

// Each rank's leaves are accumulated one after the other, then the ranks' sums; rounded where they
// travel.
float ordered_sum(const std::vector<float>& leaves, int ranks, DType wire = DType::f32) {
  const auto rounded = [&](float x) {
    if (ranks > 1) kernels::round_elements(&x, wire, &x, 1);
    return x;
  };
  float total = 0.0F;
  for (int rank = 0; rank < ranks; ++rank) {
    const LeafRange range = owned_leaves(rank, ranks, static_cast<std::int64_t>(leaves.size()));
    float own = leaves[static_cast<std::size_t>(range.begin)];
    for (std::int64_t leaf = range.begin + 1; leaf < range.end; ++leaf) {
      own += leaves[static_cast<std::size_t>(leaf)];
    }
    total = rank == 0 ? rounded(own) : total + rounded(own);
  }
  return rounded(total);
}

TEST(ReducerSums, InvariantHasTheBitsOfTheTreeForEveryLeafAndRankCount) {
  for (std::int64_t leaves = 1; leaves <= 12; ++leaves) {
    std::vector<std::uint32_t> want;
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      run_ranks(ranks, [&](Communicator& group) {
        const ToyModel model(kSizes);
        Stream compute(Device{}, "compute");
        GradientReducer reducer(group, compute, model.parameters(), leaves,
                                small_buckets(Reduction::invariant));
        if (ranks == 1) {
          want = expected_arena(reducer.plan(), leaves,
                                [](const std::vector<float>& values) { return tree_sum(values); });
        }
        for (int step = 0; step < 2; ++step) {  // the second one over the remains of the first
          toy_step(reducer, compute, model);
          EXPECT_EQ(bits_of(reducer.arena()), want) << leaves << " leaves, " << ranks << " ranks";
        }
      });
    }
  }
}

TEST(ReducerSums, InvariantHasTheSameBitsBetweenMappings) {
  constexpr std::int64_t kLeaves = 5;
  std::vector<std::uint32_t> want;
  run_ranks(1, [&](Communicator& group) {
    const ToyModel model(kSizes);
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), kLeaves);
    toy_step(reducer, compute, model);
    want = bits_of(reducer.arena());
  });
  auto abort = std::make_shared<AbortSignal>();
  testing_support::run_group(testing_support::make_shm_group(3, {}, abort), abort,
                             [&](Communicator& group) {
                               const ToyModel model(kSizes);
                               Stream compute(Device{}, "compute");
                               GradientReducer reducer(group, compute, model.parameters(), kLeaves,
                                                       small_buckets(Reduction::invariant));
                               toy_step(reducer, compute, model);
                               EXPECT_EQ(bits_of(reducer.arena()), want);
                             });
}

TEST(ReducerSums, OrderedAddsRanksInTheirOrder) {
  constexpr std::int64_t kLeaves = 7;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&](Communicator& group) {
      const ToyModel model(kSizes);
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), kLeaves,
                              small_buckets(Reduction::ordered));
      const auto want = expected_arena(
          reducer.plan(), kLeaves,
          [&](const std::vector<float>& values) { return ordered_sum(values, ranks); });
      for (int step = 0; step < 2; ++step) {
        toy_step(reducer, compute, model);
        EXPECT_EQ(bits_of(reducer.arena()), want) << ranks << " ranks";
      }
    });
  }
}

TEST(ReducerSums, ABf16WireRoundsPartsAndTheirF32Sum) {
  constexpr std::int64_t kLeaves = 7;
  for (const Reduction reduction : {Reduction::ordered, Reduction::fast}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      run_ranks(ranks, [&](Communicator& group) {
        const ToyModel model(kSizes);
        Stream compute(Device{}, "compute");
        ReducerOptions options = small_buckets(reduction);
        options.wire = DType::bf16;
        GradientReducer reducer(group, compute, model.parameters(), kLeaves, options);
        const auto want =
            expected_arena(reducer.plan(), kLeaves, [&](const std::vector<float>& values) {
              return ordered_sum(values, ranks, DType::bf16);
            });
        for (int step = 0; step < 2; ++step) {
          toy_step(reducer, compute, model);
          EXPECT_EQ(bits_of(reducer.arena()), want) << ranks << " ranks";
        }
      });
    }
  }
}

TEST(ReducerSums, ABf16WireIsRefusedWithInvariant) {
  run_ranks(1, [](Communicator& group) {
    const ToyModel model(kSizes);
    Stream compute(Device{}, "compute");
    EXPECT_THROW(GradientReducer(group, compute, model.parameters(), 4, {.wire = DType::bf16}),
                 ConfigError);
    EXPECT_THROW(GradientReducer(group, compute, model.parameters(), 4,
                                 {.reduction = Reduction::fast, .wire = DType::f16}),
                 ConfigError);
  });
}

TEST(ReducerSums, AllThreeReductionsAgreeWithinRounding) {
  constexpr std::int64_t kLeaves = 9;
  for (const auto reduction : {Reduction::fast, Reduction::ordered, Reduction::invariant}) {
    run_ranks(3, [&](Communicator& group) {
      const ToyModel model(kSizes);
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), kLeaves,
                              small_buckets(reduction));
      toy_step(reducer, compute, model);
      for (std::size_t p = 0; p < kSizes.size(); ++p) {
        for (std::int64_t i = 0; i < kSizes[p]; ++i) {
          double exact = 0.0;
          double magnitude = 0.0;
          for (std::int64_t leaf = 0; leaf < kLeaves; ++leaf) {
            exact += toy_gradient(leaf, p, i);
            magnitude += std::abs(toy_gradient(leaf, p, i));
          }
          ASSERT_NEAR(model[p].grad().as<float>()[i], exact, 1e-6 * magnitude)
              << "p" << p << " element " << i;
        }
      }
    });
  }
}

TEST(ReducerSums, HaveTheSameBitsWithAndWithoutOverlap) {
  for (const auto reduction : {Reduction::fast, Reduction::ordered, Reduction::invariant}) {
    std::map<bool, std::vector<std::uint32_t>> bits;
    for (const bool overlap : {true, false}) {
      run_ranks(3, [&](Communicator& group) {
        const ToyModel model(kSizes);
        Stream compute(Device{}, "compute");
        ReducerOptions options = small_buckets(reduction);
        options.overlap = overlap;
        GradientReducer reducer(group, compute, model.parameters(), 8, options);
        toy_step(reducer, compute, model);
        if (group.rank() == 1) bits[overlap] = bits_of(reducer.arena());
      });
    }
    EXPECT_EQ(bits[true], bits[false]);
  }
}

TEST(ReducerSums, DoNotDependOnBucketSizes) {
  std::map<std::size_t, std::vector<std::uint32_t>> bits;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{20} << 10, std::size_t{25} << 20}) {
    run_ranks(2, [&](Communicator& group) {
      const ToyModel model(kSizes);
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), 6,
                              {.first_bucket_bytes = bytes, .bucket_bytes = bytes});
      toy_step(reducer, compute, model);
      if (group.rank() == 0) bits[bytes] = bits_of(reducer.arena());
    });
  }
  EXPECT_EQ(bits.size(), 3U);
  for (const auto& [bytes, each] : bits) EXPECT_EQ(each, bits.begin()->second) << bytes;
}

}  // namespace
}  // namespace lockstep
