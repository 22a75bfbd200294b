// SPDX-License-Identifier: Apache-2.0
// What ranks read together: each byte once, the same result and the same end on all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/runtime/store/faulty_store.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace testing;

Manifest newest_manifest(ObjectStore& store) {
  const LogView view = read_log(store);
  return read_manifest(store, view, *view.newest());
}

/// A large tensor among hundreds of small ones.
std::vector<TensorSpec> mixed_model() {
  std::vector<TensorSpec> specs = large_model();
  for (int i = 0; i < 200; ++i) specs.push_back({"layer." + std::to_string(i), {17, i}});
  return specs;
}

TEST(SharedRestore, ReadsEachByteOfAShardOnceWhateverTheNumberOfRanks) {
  const auto store = fresh_memory_store();
  save_steps(*store, 3, {10}, mixed_model());
  const Manifest manifest = newest_manifest(*store);
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    std::vector<std::atomic<std::uint64_t>> read(static_cast<std::size_t>(ranks));
    std::atomic<std::uint64_t> requests = 0;
    run_ranks(ranks, [&](Communicator& world) {
      FaultyStore counting(*store, INT64_MAX, Fault::error);
      counting.after_read = [&](std::string_view key, std::uint64_t bytes) {
        EXPECT_THAT(std::string(key), HasSubstr("s/"));
        read[static_cast<std::size_t>(world.rank())] += bytes;
        ++requests;
      };
      Launch launch(counting, world, mixed_model());
      ASSERT_TRUE(launch.load());
      EXPECT_EQ(launch.state.bytes(), bytes_of_step(mixed_model(), 10));
    });
    std::uint64_t all = 0;
    for (const auto& of_rank : read) {
      all += of_rank;
      EXPECT_LE(of_rank, manifest.bytes / static_cast<std::uint64_t>(ranks) + (12U << 20U));
    }
    EXPECT_LE(all, manifest.bytes);
    EXPECT_GE(all, manifest.bytes - (64U << 10U)) << "gaps between requests";
    EXPECT_LE(requests, 12U) << "36 MiB in pieces of 8, three heads";
  }
}

TEST(SharedRestore, TakesTheCommitBeforeOnAllRanksWhereverTheDamageIs) {
  for (const auto& [writer, ranks] : {std::pair(0, 1), {1, 2}, {2, 4}}) {
    SCOPED_TRACE(std::to_string(writer) + " on " + std::to_string(ranks));
    const auto store = fresh_memory_store();
    save_steps(*store, 3, {10, 20}, large_model());
    const ManifestShard shard = newest_manifest(*store).shards[static_cast<std::size_t>(writer)];
    flip_bit(*store, shard.key, shard.size - 1, 3);
    const Loaded loaded = load_newest(*store, ranks, large_model());
    EXPECT_EQ(loaded.result->commit.step, 10U);
    ASSERT_THAT(loaded.result->warnings, SizeIs(1));
    EXPECT_THAT(loaded.result->warnings[0], HasSubstr(shard.key));
    EXPECT_THAT(loaded.bytes, Each(bytes_of_step(large_model(), 10)));
  }
}

TEST(SharedRestore, EndsOnAllRanksWhereverAReadFails) {
  const auto store = fresh_memory_store();
  save_steps(*store, 3, {10}, large_model());
  for (const int failing : {0, 1, 2}) {
    for (const std::int64_t n : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(failing) + " in call " + std::to_string(n));
      std::atomic<int> ended = 0;
      run_ranks(3, [&](Communicator& world) {
        FaultyStore faulty(*store, INT64_MAX, Fault::error);
        Launch launch(faulty, world, large_model());
        if (world.rank() == failing) faulty.arm(n);
        try {
          launch.load();
        } catch (const Error& error) {
          EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
          EXPECT_THAT(error.what(), HasSubstr("injected fault"));
          ++ended;
        }
      });
      EXPECT_EQ(ended, 3);
    }
  }
}

TEST(SharedRestore, WaitsForAnothersReadNoLongerThanTheGroupsDeadline) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, large_model());
  const auto began = std::chrono::steady_clock::now();
  const auto load = [&](Communicator& world) {
    FaultyStore slow(*store, INT64_MAX, Fault::error);
    slow.after_read = [&](std::string_view, std::uint64_t) {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    };
    Launch launch(slow, world, large_model());
    launch.load();
  };
  EXPECT_THROW(run_ranks(2, load, {.timeout = std::chrono::seconds(1)}), CommError);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lockstep
