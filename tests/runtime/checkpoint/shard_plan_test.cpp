// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/core/hash.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/reshard.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<PlanTensor> tensors() {
  std::vector<PlanTensor> all;
  for (const char* name : {"wte", "b", "scalar", "none"}) {
    const std::string text = name;
    const std::vector<std::uint64_t> shape = text == "wte" ? std::vector<std::uint64_t>{700, 30}
                                             : text == "b" ? std::vector<std::uint64_t>{11}
                                             : text == "scalar" ? std::vector<std::uint64_t>{}
                                                                : std::vector<std::uint64_t>{0, 4};
    for (const StateKind kind : {StateKind::v, StateKind::param, StateKind::m}) {
      all.push_back({text, kind, DType::f32, shape});
    }
  }
  return all;
}

std::uint64_t bytes_of(const std::vector<Fragment>& shard) {
  std::uint64_t bytes = 0;
  for (const Fragment& fragment : shard) bytes += fragment.bytes;
  return bytes;
}

TEST(ShardPlan, WritesParamsFirstThenOptimizerStateTensorByTensor) {
  const auto shards = plan_shards(tensors(), 1);
  std::vector<std::string> paths;
  for (const Fragment& fragment : shards.at(0)) paths.push_back(fragment.path);
  EXPECT_THAT(paths,
              ElementsAre("/param/b", "/param/scalar", "/param/wte", "/optim/m/b", "/optim/v/b",
                          "/optim/m/scalar", "/optim/v/scalar", "/optim/m/wte", "/optim/v/wte"));
}

TEST(ShardPlan, WritesEveryElementOnceForAnyNumberOfWriters) {
  for (std::uint64_t writers = 1; writers <= 17; ++writers) {
    const auto shards = plan_shards(tensors(), writers);
    ASSERT_EQ(shards.size(), writers);
    std::map<std::string, std::vector<CopyRun>> cover;
    for (const auto& shard : shards) {
      for (const Fragment& fragment : shard) {
        const auto runs = copy_runs(fragment, fragment.box);
        auto& all = cover[std::string(without_run(fragment.path))];
        all.insert(all.end(), runs.begin(), runs.end());
      }
    }
    EXPECT_EQ(cover.size(), 9U);
    for (const auto& [path, runs] : cover) {
      const std::uint64_t elements = path.ends_with("wte") ? 21'000 : path.ends_with("b") ? 11 : 1;
      EXPECT_EQ(cover_fault(runs, elements), "") << path << " over " << writers;
    }
  }
}

TEST(ShardPlan, LeavesPiecesWithTheirRanks) {
  const std::vector<PlanTensor> all = {{"w", StateKind::param, DType::f32, {6}},
                                       {"w", StateKind::m, DType::f32, {6}, {0, 2, 2, 6}},
                                       {"x", StateKind::param, DType::f32, {4096}},
                                       {"x", StateKind::m, DType::f32, {4096}, {0, 0, 4096, 4096}}};
  const auto shards = plan_shards(all, 3);
  const auto pieces = [&](std::size_t writer) {
    std::vector<std::string> found;
    for (const Fragment& fragment : shards[writer]) {
      if (fragment.kind != "m") continue;
      const FlatRun run = fragment.flat.value_or(FlatRun{.start = 0, .length = 0});
      found.push_back(fragment.path + " " + std::to_string(run.start) + "+" +
                      std::to_string(elements_of(fragment)));
    }
    return found;
  };
  EXPECT_THAT(pieces(0), ElementsAre("/optim/m/w 0+2"));
  EXPECT_THAT(pieces(1), ElementsAre("/optim/m/x 0+4096"));
  EXPECT_THAT(pieces(2), ElementsAre("/optim/m/w 2+4"));
}

TEST(ShardPlan, SharesTheBytesEvenly) {
  const std::vector<PlanTensor> one = {{"w", StateKind::param, DType::f32, {1 << 20, 3}}};
  for (const std::uint64_t writers : {2U, 3U, 7U}) {
    for (const auto& shard : plan_shards(one, writers)) {
      const double share = 12.0 * (1 << 20) / static_cast<double>(writers);
      EXPECT_NEAR(static_cast<double>(bytes_of(shard)), share, 4096.0 + 1.0);
    }
  }
}

TEST(ShardPlan, CutsOnlyAtMultiplesOf1024Elements) {
  for (const auto& shard : plan_shards(tensors(), 5)) {
    for (const Fragment& fragment : shard) {
      EXPECT_EQ(fragment.flat.value_or(FlatRun{}).start % 1024, 0U);
    }
  }
}

TEST(ShardPlan, GivesWritersWithNothingAnEmptyShard) {
  const std::vector<PlanTensor> few = {{"x", StateKind::param, DType::f32, {6}}};
  const auto shards = plan_shards(few, 4);
  std::size_t filled = 0;
  for (const auto& shard : shards) filled += shard.empty() ? 0 : 1;
  EXPECT_EQ(filled, 1U);
  for (const auto& shard : plan_shards({}, 2)) EXPECT_TRUE(shard.empty());
}

TEST(ShardPlan, SplitsADatasetWithTooManyChecksums) {
  const std::vector<PlanTensor> large = {{"x/y", StateKind::param, DType::f32, {5, 1 << 20}}};
  const auto shards = plan_shards(large, 1, 2);
  std::vector<std::string> paths;
  std::uint64_t start = 0;
  for (const Fragment& fragment : shards.at(0)) {
    paths.push_back(fragment.path);
    ASSERT_TRUE(fragment.flat);
    EXPECT_EQ(fragment.flat->start, start);
    EXPECT_LE(blocks_of(fragment), 2U);
    start += fragment.flat->length;
  }
  EXPECT_THAT(paths, ElementsAre("/param/x%2Fy", "/param/x%2Fy%~1", "/param/x%2Fy%~2"));
  EXPECT_EQ(start, 5U << 20);
}

TEST(ShardPlan, AlignsLargeDatasetsToPagesAndSmallOnesToLines) {
  std::vector<Fragment> fragments(4);
  fragments[0].bytes = 4;
  fragments[1].bytes = 4095;
  fragments[2].bytes = 4096;
  fragments[3].bytes = 1;
  EXPECT_EQ(place_fragments(fragments, 65'536), 65'536U + 12'288U + 1U);
  EXPECT_EQ(fragments[0].offset, 65'536U);
  EXPECT_EQ(fragments[1].offset, 65'536U + 64U);
  EXPECT_EQ(fragments[2].offset, 65'536U + 8192U);
  EXPECT_EQ(fragments[3].offset, 65'536U + 12'288U);
}

TEST(ShardPlan, IsHashedAsTheFormatSays) {
  std::vector<std::vector<Fragment>> shards(2);
  Fragment whole;
  whole.kind = "param";
  whole.path = "/param/a b";
  whole.gshape = {2, 3};
  whole.box = {.start = {0, 0}, .count = {2, 3}};
  whole.offset = 65'600;
  Fragment scalar;
  scalar.kind = "m";
  scalar.path = "/optim/m/s";
  scalar.offset = 65'536;
  Fragment run = whole;
  run.dtype = DType::bf16;
  run.flat = FlatRun{.start = 4, .length = 2};
  run.replica = 1;
  Fragment blob;
  blob.kind = "state";
  shards[0] = {whole, scalar, blob};
  shards[1] = {run};
  EXPECT_EQ(plan_sha256({.dp = 2, .tp = 1, .zero = 0}, shards),
            to_hex(sha256("mesh 2 1 0 block 4194304\n"
                          "0 65536 f32 . . - - /optim/m/s\n"
                          "0 65600 f32 2,3 0,0,2,3 - - /param/a b\n"
                          "1 65600 bf16 2,3 0,0,2,3 4,2 1 /param/a b\n")));
}

}  // namespace
}  // namespace lockstep
