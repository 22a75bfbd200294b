// SPDX-License-Identifier: Apache-2.0
// State that ranks hold in pieces, as ZeRO-1 does: saved once, loaded by any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "tests/runtime/checkpoint/job_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace testing;

using Edges = std::vector<std::int64_t>;

// Parameter "w", which all ranks have, and its m, of which each has a piece.
class PiecedState {
 public:
  PiecedState(const Shape& shape, const Edges& edges, int rank)
      : pieces_{.shape = shape, .edges = edges, .rank = static_cast<std::size_t>(rank)},
        weight_(Tensor::zeros({}, shape, DType::f32)),
        moment_(Tensor::zeros({}, {pieces_.end() - pieces_.begin()}, DType::f32)) {
    dict_.bind("w", StateKind::param, weight_);
    // One rank has all of it, which is no piece.
    dict_.bind("w", StateKind::m, edges.size() == 2 ? moment_.reshape(shape) : moment_, {},
               edges.size() == 2 ? std::nullopt : std::optional(pieces_));
  }

  void fill() {
    for (std::int64_t i = 0; i < weight_.size(); ++i) {
      weight_.as<float>()[i] = static_cast<float>(-i);
    }
    for (std::int64_t i = 0; i < moment_.size(); ++i) moment_.as<float>()[i] = wanted(i);
  }
  bool is_filled() const {
    for (std::int64_t i = 0; i < weight_.size(); ++i) {
      if (weight_.as<float>()[i] != static_cast<float>(-i)) return false;
    }
    for (std::int64_t i = 0; i < moment_.size(); ++i) {
      if (moment_.as<float>()[i] != wanted(i)) return false;
    }
    return true;
  }
  const StateDict& dict() const { return dict_; }

 private:
  // m = 1, 2, 3, …
  float wanted(std::int64_t i) const { return static_cast<float>(pieces_.begin() + i + 1); }

  FlatPieces pieces_;
  Tensor weight_;
  Tensor moment_;
  StateDict dict_;
};

std::unique_ptr<Checkpointer> open(ObjectStore& store, Communicator& world, const Shape& shape) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  auto checkpointer = std::make_unique<Checkpointer>(
      store, world, CheckpointOptions{.mesh = {.dp = ranks, .tp = 1, .zero = 1}});
  checkpointer->open({.model = {{"w", shape}}, .code = {{"cpu", "test"}}});
  return checkpointer;
}

int ranks_of(const Edges& edges) { return static_cast<int>(edges.size()) - 1; }

void save(ObjectStore& store, const Shape& shape, const Edges& edges) {
  run_ranks(ranks_of(edges), [&](Communicator& world) {
    const auto checkpointer = open(store, world, shape);
    PiecedState state(shape, edges, world.rank());
    state.fill();
    checkpointer->save(scalars_of(1), state.dict());
  });
}

void expect_loads(ObjectStore& store, const Shape& shape, const Edges& edges) {
  run_ranks(ranks_of(edges), [&](Communicator& world) {
    const auto checkpointer = open(store, world, shape);
    const PiecedState state(shape, edges, world.rank());
    ASSERT_TRUE(checkpointer->load(state.dict()));
    EXPECT_TRUE(state.is_filled()) << "rank " << world.rank() << " of " << world.size();
  });
}

TEST(Pieces, AreLoadedIntoOtherPieces) {
  const Shape shape = {30, 500};
  const std::vector<Edges> cuts = {
      {0, 15'000}, {0, 4096, 15'000}, {0, 0, 15'000, 15'000}, {0, 1, 4096, 4096, 15'000}};
  for (const Edges& saved : cuts) {
    const auto store = fresh_memory_store();
    save(*store, shape, saved);
    for (const Edges& loaded : cuts) expect_loads(*store, shape, loaded);
  }
}

TEST(Pieces, MayBeFewerElementsThanRanks) {
  // Case P26: 6 elements over 4 ranks as 2, 2, 2, 0; 1 over 3; 0 over 2.
  const auto six = fresh_memory_store();
  save(*six, {6}, {0, 2, 4, 6, 6});
  for (const Edges& edges :
       {Edges{0, 2, 4, 6, 6}, Edges{0, 2, 4, 6}, Edges{0, 3, 6}, Edges{0, 6}}) {
    expect_loads(*six, {6}, edges);
  }
  const auto one = fresh_memory_store();
  save(*one, {1}, {0, 1, 1, 1});
  for (const Edges& edges : {Edges{0, 0, 1, 1}, Edges{0, 1}}) expect_loads(*one, {1}, edges);
  const auto none = fresh_memory_store();
  save(*none, {0}, {0, 0, 0});
  expect_loads(*none, {0}, {0, 0});
}

TEST(Pieces, HaveNoPaddingThatAnotherWorldSizeCouldRead) {
  // Case P27: m = 1 … 10 from 3 ranks with alignment 2.
  const auto store = fresh_memory_store();
  save(*store, {10}, {0, 4, 8, 10});
  for (const Edges& edges :
       {Edges{0, 6, 10}, Edges{0, 4, 6, 8, 10}, Edges{0, 10}, Edges{0, 4, 8, 10}}) {
    expect_loads(*store, {10}, edges);
  }
}

TEST(Pieces, AreOneADataParallelRank) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    const auto checkpointer = open(*store, world, {6});
    const PiecedState state({6}, {0, 2, 4, 6}, world.rank());
    try {
      checkpointer->save(scalars_of(1), state.dict());
      ADD_FAILURE() << "saved";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("w (m) is in 3 pieces on 2 ranks"));
    }
  });
}

// A parameter of some precision with its master, in pieces, if it is no f32.
class PreciseState {
 public:
  PreciseState(DType type, const Edges& edges, int rank)
      : pieces_{.shape = {10}, .edges = edges, .rank = static_cast<std::size_t>(rank)},
        weight_(Tensor::zeros({}, {10}, type)) {
    dict_.bind("w", StateKind::param, weight_);
    if (type == DType::f32) return;
    master_ = Tensor::zeros({}, {pieces_.end() - pieces_.begin()}, DType::f32);
    dict_.bind("w", StateKind::master, master_, {}, pieces_);
  }
  void fill() {
    for (std::int64_t i = 0; i < master_.size(); ++i) {
      master_.as<float>()[i] = wanted(pieces_.begin() + i);
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < 10; ++i) values.push_back(wanted(i));
    kernels::convert_elements(values.data(), DType::f32, weight_.data(), weight_.dtype(), 10);
  }
  // The master's digits, as far as this precision shows them.
  bool holds() const {
    std::vector<float> values(10);
    kernels::convert_elements(weight_.data(), weight_.dtype(), values.data(), DType::f32, 10);
    for (std::int64_t i = 0; i < 10; ++i) {
      const bool exact = weight_.dtype() == DType::f32;
      const float value = values[static_cast<std::size_t>(i)];
      if (exact ? value != wanted(i) : std::abs(value - wanted(i)) > 4e-3F) return false;
    }
    for (std::int64_t i = 0; i < master_.size(); ++i) {
      if (master_.as<float>()[i] != wanted(pieces_.begin() + i)) return false;
    }
    return true;
  }
  const StateDict& dict() const { return dict_; }

 private:
  static float wanted(std::int64_t i) { return 1.0F + 1e-3F * static_cast<float>(i); }

  FlatPieces pieces_;
  Tensor weight_;
  Tensor master_;
  StateDict dict_;
};

TEST(Pieces, OfAMasterAreLoadedInAnotherPrecision) {
  const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16};
  for (const DType saved : types) {
    const auto store = fresh_memory_store();
    run_ranks(2, [&](Communicator& world) {
      const auto checkpointer = open(*store, world, {10});
      PreciseState state(saved, {0, 4, 10}, world.rank());
      state.fill();
      checkpointer->save(scalars_of(1), state.dict());
      EXPECT_EQ(weights_sha256(state.dict(), world),
                world.rank() == 0 ? weights_sha256(*store) : std::string());
    });
    for (const DType loaded : types) {
      run_ranks(3, [&](Communicator& world) {
        const auto checkpointer = open(*store, world, {10});
        const PreciseState state(loaded, {0, 1, 8, 10}, world.rank());
        ASSERT_TRUE(checkpointer->load(state.dict()));
        EXPECT_TRUE(state.holds()) << to_string(saved) << " -> " << to_string(loaded);
      });
    }
  }
}

TEST(Pieces, AreBoundWithTheirSize) {
  StateDict state;
  EXPECT_THROW(state.bind("w", StateKind::m, Tensor::zeros({}, {3}, DType::f32), {},
                          FlatPieces{.shape = {6}, .edges = {0, 2, 6}, .rank = 0}),
               UsageError);
}

}  // namespace
}  // namespace lockstep
