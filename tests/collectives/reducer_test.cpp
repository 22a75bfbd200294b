// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "collectives/backend.h"
#include "collectives/communication_thread.h"
#include "collectives/local/local_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/ledger.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/support/toy_step.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::bits_of;
using testing_support::give_gradient;
using testing_support::run_ranks;
using testing_support::toy_backward;
using testing_support::toy_gradient;
using testing_support::toy_step;
using testing_support::ToyModel;

// Passes everything on and notes the order of reductions.
class RecordingBackend final : public Backend {
 public:
  RecordingBackend(std::unique_ptr<Backend> inner, std::vector<std::size_t>* reductions)
      : inner_(std::move(inner)), reductions_(reductions) {}
  const char* name() const noexcept override { return inner_->name(); }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  Task allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) override {
    return inner_->allocate(bytes, memory, wait);
  }
  Task all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                  Wait& wait) override {
    return inner_->all_reduce(inout, count, dtype, op, wait);
  }
  Task reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                    const SumPlan& plan, Wait& wait) override {
    reductions_->push_back(count);
    return inner_->reduce_parts(parts, out, count, plan, wait);
  }
  Task reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                      const SumPlan& plan, std::span<const std::size_t> edges,
                      Wait& wait) override {
    reductions_->push_back(count);
    return inner_->reduce_scatter(parts, out, count, plan, edges, wait);
  }
  Task all_gather_slices(float* inout, std::size_t count, std::span<const std::size_t> edges,
                         Wait& wait) override {
    return inner_->all_gather_slices(inout, count, edges, wait);
  }
  Task all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                  Wait& wait) override {
    return inner_->all_gather(in, out, bytes_each, wait);
  }
  Task broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) override {
    return inner_->broadcast(inout, bytes, root, wait);
  }
  Task barrier(Wait& wait) override { return inner_->barrier(wait); }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<std::size_t>* reductions_;
};

std::unique_ptr<Communicator> recording_communicator(std::vector<std::size_t>& reductions) {
  return std::make_unique<Communicator>(
      std::make_unique<RecordingBackend>(std::move(make_local_backends(1).front()), &reductions),
      std::make_shared<CommunicationThread>("comm"), std::make_shared<AbortSignal>(),
      CommunicatorOptions{});
}

constexpr std::int64_t kBlock = kBlockElements;
const std::vector<std::int64_t> kFour = {kBlock, 2 * kBlock, 3 * kBlock, 4 * kBlock};
const ReducerOptions kBucketEach{.first_bucket_bytes = 1, .bucket_bytes = 1};

TEST(Reducer, LaunchesInPlanOrderWhenGradientsArriveTheOtherWayRound) {
  std::vector<std::size_t> reductions;
  const auto group = recording_communicator(reductions);
  const ToyModel model(kFour);
  Stream compute(Device{}, "compute");
  GradientReducer reducer(*group, compute, model.parameters(), 1, kBucketEach);
  reducer.begin_step();
  reducer.begin_leaf(0);
  for (std::size_t p = 0; p < model.size(); ++p) {  // p3 is in bucket 0
    give_gradient(compute, model[p], [](std::int64_t) { return 1.0F; });
  }
  reducer.finish();
  EXPECT_THAT(reductions, ElementsAre(4 * kBlock, 3 * kBlock, 2 * kBlock, kBlock));
}

TEST(Reducer, LaunchesABucketWhileBackwardStillRuns) {
  std::vector<std::size_t> reductions;
  const auto group = recording_communicator(reductions);
  const ToyModel model(kFour);
  Stream compute(Device{}, "compute");
  GradientReducer reducer(*group, compute, model.parameters(), 2, kBucketEach);
  reducer.begin_step();
  reducer.begin_leaf(0);
  toy_backward(compute, model, 0);
  compute.synchronize();
  group->barrier().wait();
  EXPECT_TRUE(reductions.empty()) << "only the last leaf launches";
  reducer.begin_leaf(1);
  give_gradient(compute, model[3], [](std::int64_t) { return 1.0F; });
  give_gradient(compute, model[2], [](std::int64_t) { return 1.0F; });
  compute.synchronize();
  group->barrier().wait();
  EXPECT_THAT(reductions, ElementsAre(4 * kBlock, 3 * kBlock));
  give_gradient(compute, model[1], [](std::int64_t) { return 1.0F; });
  give_gradient(compute, model[0], [](std::int64_t) { return 1.0F; });
  reducer.finish();
  EXPECT_EQ(reductions.size(), 4U);
}

TEST(Reducer, LaunchesEverythingAtTheEndWithoutOverlap) {
  std::vector<std::size_t> reductions;
  const auto group = recording_communicator(reductions);
  const ToyModel model(kFour);
  Stream compute(Device{}, "compute");
  ReducerOptions options = kBucketEach;
  options.overlap = false;
  GradientReducer reducer(*group, compute, model.parameters(), 1, options);
  reducer.begin_step();
  reducer.begin_leaf(0);
  toy_backward(compute, model, 0);
  compute.synchronize();
  group->barrier().wait();
  EXPECT_TRUE(reductions.empty());
  reducer.finish();
  EXPECT_EQ(reductions.size(), 4U);
}

TEST(Reducer, TakesMarksFromAnyThread) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model(std::vector<std::int64_t>(12, 3000));
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 4, kBucketEach);
    for (int step = 0; step < 5; ++step) {
      reducer.begin_step();
      for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
        reducer.begin_leaf(leaf);
        std::vector<std::thread> threads;
        for (std::size_t first = 0; first < 3; ++first) {
          threads.emplace_back([&, first, leaf] {
            Stream own(Device{}, "side");
            for (std::size_t p = first; p < model.size(); p += 3) {
              give_gradient(own, model[p],
                            [leaf, p](std::int64_t i) { return toy_gradient(leaf, p, i); });
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
      }
      reducer.finish();
      for (std::size_t p = 0; p < model.size(); ++p) {
        const float want = (toy_gradient(0, p, 17) + toy_gradient(1, p, 17)) +
                           (toy_gradient(2, p, 17) + toy_gradient(3, p, 17));
        ASSERT_EQ(model[p].grad().as<float>()[17], want);
      }
    }
  });
}

TEST(Reducer, AddsLossesInLeafOrderAndTellsAllRanks) {
  constexpr std::int64_t kLeaves = 7;
  double loss = 0.0;
  for (std::int64_t leaf = 0; leaf < kLeaves; ++leaf) {
    loss += std::ldexp(1.0 + 0.1 * static_cast<double>(leaf), static_cast<int>(leaf));
  }
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&](Communicator& group) {
      const ToyModel model({10, 20});
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), kLeaves);
      const StepTotals totals = toy_step(reducer, compute, model);
      EXPECT_EQ(totals.loss, loss);
      EXPECT_EQ(totals.tokens, 28);
      EXPECT_FALSE(totals.notice || totals.skip || totals.non_finite);
      EXPECT_EQ(totals.non_finite_leaf, -1);
    });
  }
}

TEST(Reducer, SharesFlagsAndTheFirstNonFiniteLeaf) {
  run_ranks(3, [](Communicator& group) {
    const ToyModel model({10});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 6);
    reducer.begin_step();
    for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
      if (leaf + 1 == reducer.leaves().end) {
        reducer.set_flags({.notice = group.rank() == 2, .skip = group.rank() == 0});
      }
      reducer.begin_leaf(leaf);
      if (leaf == 3) reducer.leaf_sums()->non_finite = 2;
      if (leaf == 4) reducer.leaf_sums()->loss = std::numeric_limits<double>::quiet_NaN();
      toy_backward(compute, model, leaf);
    }
    const StepTotals totals = reducer.finish();
    EXPECT_TRUE(totals.notice);
    EXPECT_TRUE(totals.skip);
    EXPECT_TRUE(totals.non_finite);
    EXPECT_EQ(totals.non_finite_leaf, 3);
    EXPECT_FALSE(toy_step(reducer, compute, model).notice) << "flags are those of one step";
  });
}

TEST(Reducer, CountsALeafWithoutSamplesAsZero) {
  for (const auto reduction : {Reduction::fast, Reduction::ordered, Reduction::invariant}) {
    run_ranks(2, [&](Communicator& group) {
      const ToyModel model({5000, 7});
      Stream compute(Device{}, "compute");
      GradientReducer reducer(group, compute, model.parameters(), 4,
                              {.reduction = reduction, .bucket_bytes = 1});
      toy_step(reducer, compute, model);  // leaves something behind
      // Rank 1 has no samples at all; rank 0 has none in its first leaf.
      reducer.begin_step();
      for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
        reducer.begin_leaf(leaf);
        if (leaf == 1) {
          toy_backward(compute, model, leaf);
        } else {
          reducer.zero_leaf();
        }
      }
      EXPECT_EQ(reducer.finish().tokens, 0);
      for (std::size_t p = 0; p < model.size(); ++p) {
        for (std::int64_t i = 0; i < model[p].size(); ++i) {
          ASSERT_EQ(model[p].grad().as<float>()[i], toy_gradient(1, p, i));
        }
      }
    });
  }
}

TEST(Reducer, KeepsThePaddingZero) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({5, 4097});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 4);
    for (int step = 0; step < 2; ++step) {
      toy_step(reducer, compute, model);
      std::vector<bool> used(static_cast<std::size_t>(reducer.plan().arena_elements));
      for (const ArenaEntry& entry : reducer.plan().entries) {
        for (std::int64_t i = 0; i < entry.size; ++i) {
          used[static_cast<std::size_t>(entry.offset + i)] = true;
        }
      }
      const auto bits = bits_of(reducer.arena());
      for (std::size_t i = 0; i < bits.size(); ++i) {
        if (used[i]) continue;
        ASSERT_EQ(bits[i], 0U) << "element " << i;
      }
    }
  });
}

TEST(Reducer, BindsTheReducedGradientsToTheParameters) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({3, 4});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 8);
    toy_step(reducer, compute, model);
    for (std::size_t p = 0; p < model.size(); ++p) {
      EXPECT_EQ(model[p].grad().data(),
                reducer.arena().as<float>() + reducer.plan().entries[p].offset);
    }
  });
}

TEST(Reducer, NamesAParameterMarkedTwice) {
  run_ranks(1, [](Communicator& group) {
    const ToyModel model({3, 4});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    reducer.begin_step();
    reducer.begin_leaf(0);
    model[1].mark_ready({});
    try {
      model[1].mark_ready({});
      ADD_FAILURE() << "a second mark was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("p1 marked ready twice in leaf 0"));
    }
  });
}

TEST(Reducer, RefusesCallsOutOfOrder) {
  run_ranks(1, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    EXPECT_THROW(reducer.begin_leaf(0), UsageError);
    EXPECT_THROW(reducer.finish(), UsageError);
    EXPECT_THROW(reducer.set_flags({}), UsageError);
    EXPECT_THROW(model[0].mark_ready({}), UsageError);
    reducer.begin_step();
    EXPECT_THROW(reducer.begin_step(), UsageError);
    EXPECT_THROW(reducer.begin_leaf(1), UsageError);
    EXPECT_THROW(reducer.zero_leaf(), UsageError);
    reducer.begin_leaf(0);
    EXPECT_THROW(reducer.finish(), UsageError) << "leaf 1 is missing";
    model[0].mark_ready({});
    EXPECT_THROW(reducer.zero_leaf(), UsageError);
    reducer.set_flags({});
    reducer.begin_leaf(1);
    EXPECT_THROW(reducer.set_flags({}), UsageError) << "the header goes with the first bucket";
  });
}

TEST(Reducer, LaunchesTheHeaderWithTheFirstBucket) {
  const testing_support::ScratchFolder folder;
  run_ranks(2, [&](Communicator& group) {
    const std::string path = (folder.path() / std::to_string(group.rank())).string();
    const ToyModel model({5, 6, 7});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2, kBucketEach);
    group.observe(std::make_shared<LedgerRing>(path, group.rank(), 2, 1, 16), nullptr);
    toy_step(reducer, compute, model);
    std::vector<int> operations;
    for (const LedgerRecord& record : LedgerRing::read(path).second) {
      operations.push_back(record.operation);
    }
    const int gather = static_cast<int>(CommOperation::all_gather);
    const int reduce = static_cast<int>(CommOperation::reduce_parts);
    EXPECT_THAT(operations, ElementsAre(gather, reduce, reduce, reduce));
  });
}

TEST(Reducer, RefusesMoreRanksThanLeaves) {
  run_ranks(3, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    EXPECT_THROW(GradientReducer(group, compute, model.parameters(), 2), ConfigError);
    EXPECT_THROW(
        GradientReducer(group, compute, model.parameters(), 2, {.reduction = Reduction::fast}),
        ConfigError);
  });
}

TEST(Reducer, LetsGoOfTheParametersAtItsEnd) {
  run_ranks(1, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    for (int time = 0; time < 2; ++time) {
      GradientReducer reducer(group, compute, model.parameters(), 1);
      EXPECT_THROW(GradientReducer(group, compute, model.parameters(), 1), UsageError);
      toy_step(reducer, compute, model);
    }
  });
}

TEST(Reducer, SaysHowManyArenasItHoldsAndNodesItSends) {
  run_ranks(3, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    const GradientReducer reducer(group, compute, model.parameters(), 8);
    EXPECT_EQ(reducer.cover(), group.rank() == 0 ? 1 : 2);
    EXPECT_EQ(reducer.arenas(), group.rank() == 2 ? 3 : 2);  // leaves 5, 6, 7 are three at once
  });
  run_ranks(1, [](Communicator& group) {
    const ToyModel model({3});
    Stream compute(Device{}, "compute");
    const GradientReducer reducer(group, compute, model.parameters(), 8,
                                  {.reduction = Reduction::ordered});
    EXPECT_EQ(reducer.cover(), 1);
    EXPECT_EQ(reducer.arenas(), 1);
  });
}

TEST(Reducer, MeasuresHowLongComputeWaitedForALateRank) {
  run_ranks(2, [](Communicator& group) {
    const ToyModel model({1000});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    if (group.rank() == 1) {
      compute.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); });
    }
    toy_step(reducer, compute, model);
    if (group.rank() == 0) {
      EXPECT_GT(reducer.exposed_seconds(), 0.1);
    } else {
      EXPECT_LT(reducer.exposed_seconds(), 0.1);
    }
  });
}

TEST(Reducer, HandsOnAnAbortToTheRankThatWaits) {
  auto abort = std::make_shared<AbortSignal>();
  testing_support::run_group(make_local_group(2, {}, abort), abort, [&](Communicator& group) {
    const ToyModel model({1000});
    Stream compute(Device{}, "compute");
    GradientReducer reducer(group, compute, model.parameters(), 2);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      abort->raise({.kind = "lost rank", .origin_rank = 1, .what = "killed", .hint = {}});
      return;
    }
    try {
      toy_step(reducer, compute, model);
      ADD_FAILURE() << "the step ended without rank 1";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1: lost rank: killed"));
    }
  });
}

}  // namespace
}  // namespace lockstep
