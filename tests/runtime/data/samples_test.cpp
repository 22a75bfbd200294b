// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/samples.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::int32_t kIgnored = -100;

TokenStream counting(int tokens) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tokens));
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  return TokenStream(std::move(bytes));
}

std::vector<std::int32_t> values(const Tensor& tensor) {
  return {tensor.as<std::int32_t>(), tensor.as<std::int32_t>() + tensor.size()};
}

// The ids that the steps from the cursor on take, one list a step; a sample is known by its first
// token.
std::vector<std::vector<std::int64_t>> ids_of_steps(SampleSequence& sequence, int steps, int leaves,
                                                    std::int64_t micro) {
  std::vector<std::vector<std::int64_t>> ids;
  const Batch batch = make_batch(micro, 1);
  for (int step = 0; step < steps; ++step) {
    auto& list = ids.emplace_back();
    for (int leaf = 0; leaf < leaves; ++leaf) {
      if (!sequence.has_samples(leaf)) continue;
      sequence.read_leaf(leaf, batch);
      for (std::int64_t row = 0; row < micro; ++row) {
        if (values(batch.targets)[static_cast<std::size_t>(row)] == kIgnored) continue;
        list.push_back(values(batch.tokens)[static_cast<std::size_t>(row)] - 1);
      }
    }
    sequence.advance();
  }
  return ids;
}

TEST(Samples, CountEveryTargetOnce) {
  EXPECT_EQ(sample_count(0, 4), 0);
  EXPECT_EQ(sample_count(1, 4), 0);
  EXPECT_EQ(sample_count(2, 4), 1);
  EXPECT_EQ(sample_count(5, 4), 1);
  EXPECT_EQ(sample_count(6, 4), 2);
}

TEST(Samples, EndWithZerosAndIgnoredTargets) {
  const TokenStream stream = counting(6);
  const Batch batch = make_batch(3, 4);
  read_samples(stream, 0, 2, batch);
  EXPECT_EQ(values(batch.tokens), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(batch.targets),
            (std::vector<std::int32_t>{2, 3, 4, 5, 6, kIgnored, kIgnored, kIgnored, kIgnored,
                                       kIgnored, kIgnored, kIgnored}));
}

TEST(Samples, TakeTheOrderOfTheDesign) {
  const std::vector<std::int64_t> first = epoch_order(87381, 7, 0);
  EXPECT_EQ((std::vector<std::int64_t>{first[0], first[1], first[2]}),
            (std::vector<std::int64_t>{4029, 50310, 20061}));
  const std::vector<std::int64_t> second = epoch_order(87381, 7, 1);
  EXPECT_EQ((std::vector<std::int64_t>{second[0], second[1], second[2]}),
            (std::vector<std::int64_t>{61717, 1690, 14030}));
}

TEST(Samples, DropAndRepeatNothingWhateverTheBatch) {
  const TokenStream stream = counting(11);  // 10 samples of one target
  for (const std::int64_t global : {1, 2, 3, 4, 8, 10, 16}) {
    SampleSequence sequence(stream, 1, global, 1, 3);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::multiset<std::int64_t> seen;
      const auto ids = ids_of_steps(sequence, static_cast<int>(sequence.steps_per_epoch()),
                                    static_cast<int>(global), 1);
      for (const auto& step : ids) seen.insert(step.begin(), step.end());
      EXPECT_EQ(seen.size(), 10U) << global;
      EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 10U) << global;
    }
  }
}

// P34: resume in the middle of an epoch after the first.
TEST(Samples, GoOnAfterASeekAsIfNeverStopped) {
  const TokenStream stream = counting(11);
  SampleSequence whole(stream, 1, 1, 1, 5);
  const auto expected = ids_of_steps(whole, 30, 1, 1);
  SampleSequence stopped(stream, 1, 1, 1, 5);
  ids_of_steps(stopped, 14, 1, 1);  // epoch 1, after 4
  EXPECT_EQ(stopped.cursor().epoch, 1);
  EXPECT_EQ(stopped.cursor().position, 4);
  SampleSequence resumed(stream, 1, 1, 1, 5);
  resumed.seek(stopped.cursor());
  const auto rest = ids_of_steps(resumed, 16, 1, 1);
  EXPECT_EQ(rest, (std::vector<std::vector<std::int64_t>>(expected.begin() + 14, expected.end())));
}

TEST(Samples, LieInTheSameLeavesWhoeverReadsThem) {
  const TokenStream stream = counting(11);
  SampleSequence one(stream, 1, 4, 2, 9);
  SampleSequence other(stream, 1, 4, 2, 9);
  const Batch a = make_batch(2, 1);
  const Batch b = make_batch(2, 1);
  for (int step = 0; step < 5; ++step) {
    one.read_leaf(0, a);
    one.read_leaf(1, a);
    other.read_leaf(1, b);
    EXPECT_EQ(values(a.tokens), values(b.tokens));
    one.advance();
    other.advance();
  }
}

TEST(Samples, RefuseAStreamWithoutASampleAndAPositionOutside) {
  const TokenStream none = counting(1);
  EXPECT_THROW(SampleSequence(none, 4, 1, 1, 0), ConfigError);
  const TokenStream stream = counting(11);
  SampleSequence sequence(stream, 1, 1, 1, 0);
  EXPECT_THROW(sequence.seek({.epoch = 0, .position = 10}), ConfigError);
}

}  // namespace
}  // namespace lockstep
