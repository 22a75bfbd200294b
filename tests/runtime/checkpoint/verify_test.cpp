// SPDX-License-Identifier: Apache-2.0
// Every byte is covered: a flipped bit anywhere is found and its place named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/shard.h"
#include "tests/runtime/checkpoint/job_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;

/// Tensors whose shards have gaps, more than one block, and unaligned ends.
const std::vector<TensorSpec>& model() {
  static const std::vector<TensorSpec> specs = {{"large", {700, 1600}},
                                                {"odd", {37}},
                                                {"one", {}},
                                                {"half", {101}, DType::bf16},
                                                {"bytes", {13}, DType::u8}};
  return specs;
}

TEST(Verify, FindsNothingInWhatWasJustSaved) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10, 20}, model());
  const VerifyReport report = verify_checkpoints(*store);
  EXPECT_THAT(report.damages, IsEmpty());
  EXPECT_EQ(report.records, 4U);
  EXPECT_EQ(report.commits, 2U);
  EXPECT_EQ(report.shards, 4U);
  std::uint64_t bytes = 0;
  for (const ObjectInfo& info : store->list("s/")) bytes += info.size;
  EXPECT_EQ(report.bytes, bytes);
}

TEST(Verify, LeavesRetiredCommitsAlone) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20, 30}, model(), 1);
  const VerifyReport report = verify_checkpoints(*store);
  EXPECT_EQ(report.commits, 1U);
  EXPECT_THAT(report.damages, IsEmpty());
}

/// The dataset and block that hold a byte of a shard; an empty path for head and gaps.
Damage place_of(const ShardHead& head, std::uint64_t byte) {
  for (const Fragment& fragment : head.fragments) {
    if (byte >= fragment.offset && byte - fragment.offset < fragment.bytes) {
      return {.object = {},
              .dataset = fragment.path,
              .block = (byte - fragment.offset) / kBlockBytes,
              .what = {}};
    }
  }
  return {};
}

TEST(Verify, NamesShardDatasetAndBlockOfEveryFlippedBit) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, model());
  const LogView view = read_log(*store);
  const Manifest manifest = read_manifest(*store, view, *view.newest());
  std::mt19937_64 random(99);
  std::size_t gaps = 0;
  std::size_t flips = 0;
  for (const ManifestShard& shard : manifest.shards) {
    const ShardHead head = open_shard(*store, manifest, shard).head;
    // A sample of all bytes, and the borders of every region.
    std::set<std::uint64_t> bytes = {0, 8, shard.head_bytes - 1, shard.size - 1};
    for (const Gap& gap : gaps_of(head)) {
      bytes.insert(gap.begin);
      bytes.insert(gap.end - 1);
      ++gaps;
    }
    for (const Fragment& fragment : head.fragments) {
      bytes.insert(fragment.offset);
      bytes.insert(fragment.offset + fragment.bytes - 1);
      for (std::uint64_t block = 1; block < fragment.crcs.size(); ++block) {
        bytes.insert(fragment.offset + block * kBlockBytes - 1);
        bytes.insert(fragment.offset + block * kBlockBytes);
      }
    }
    for (int i = 0; i < 10; ++i) bytes.insert(random() % shard.head_bytes);
    for (int i = 0; i < 20; ++i) bytes.insert(random() % shard.size);
    for (const std::uint64_t byte : bytes) {
      SCOPED_TRACE(shard.key + " byte " + std::to_string(byte));
      const int bit = static_cast<int>(random() % 8);
      flip_bit(*store, shard.key, byte, bit);
      const VerifyReport report = verify_checkpoints(*store);
      ASSERT_EQ(report.damages.size(), 1U);
      const Damage wanted = place_of(head, byte);
      EXPECT_EQ(report.damages[0].object, shard.key);
      EXPECT_EQ(report.damages[0].dataset, wanted.dataset);
      EXPECT_EQ(report.damages[0].block, wanted.block);
      if (byte < shard.head_bytes) {
        EXPECT_THAT(report.damages[0].what, HasSubstr("head"));
      }
      flip_bit(*store, shard.key, byte, bit);
      ++flips;
    }
  }
  EXPECT_GT(gaps, 4U);
  EXPECT_GT(flips, 100U);
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
}

TEST(Verify, FindsEveryFlippedBitOfManifestAndLog) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20}, small_model(), 1);
  std::mt19937_64 random(5);
  std::vector<std::string> keys = keys_under(*store, "log/");
  keys.push_back("m/000000000020.000001.000.json");
  for (const std::string& key : keys) {
    const std::size_t size = store->size(key).value();
    std::set<std::size_t> bytes = {0, size - 1, size - 2, size - 3, size - 12};
    for (int i = 0; i < 30; ++i) bytes.insert(random() % size);
    for (const std::size_t byte : bytes) {
      SCOPED_TRACE(key + " byte " + std::to_string(byte));
      const int bit = static_cast<int>(random() % 8);
      flip_bit(*store, key, byte, bit);
      const VerifyReport report = verify_checkpoints(*store);
      ASSERT_FALSE(report.damages.empty());
      EXPECT_TRUE(std::any_of(report.damages.begin(), report.damages.end(),
                              [&](const Damage& damage) { return damage.object == key; }));
      flip_bit(*store, key, byte, bit);
    }
  }
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
}

TEST(Verify, ReportsEveryDamageNotOnlyTheFirst) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10, 20}, model());
  const std::vector<std::string> shards = keys_under(*store, "s/");
  for (const std::string& key : shards) {
    flip_bit(*store, key, store->size(key).value() - 1, 0);
    flip_bit(*store, key, 1, 0);
  }
  flip_bit(*store, record_key(1), 10, 0);
  EXPECT_EQ(verify_checkpoints(*store).damages.size(), shards.size() + 1);
}

TEST(Verify, FindsAMissingShard) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, model());
  const std::string key = keys_under(*store, "s/").at(0);
  store->remove(key);
  const VerifyReport report = verify_checkpoints(*store);
  ASSERT_EQ(report.damages.size(), 1U);
  EXPECT_EQ(to_string(report.damages[0]), key + ": the shard is missing");
}

TEST(Damage, IsOneLine) {
  EXPECT_EQ(to_string(Damage{.object = "s/x", .dataset = "/param/a", .block = 3, .what = "bad"}),
            "s/x dataset /param/a block 3: bad");
}

}  // namespace
}  // namespace lockstep
