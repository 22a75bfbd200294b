// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "tests/runtime/checkpoint/job_fixture.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;

CommitRecord commit_of(std::uint64_t step, std::uint64_t epoch) {
  return {.step = step,
          .tokens = step,
          .manifest = {.key = manifest_key({.step = step, .epoch = epoch, .try_number = 0}),
                       .size = 1,
                       .sha256 = std::string(64, '0')},
          .bytes = 1,
          .shards = 1,
          .parent_seq = {}};
}

/// A log with the commits of steps 10, 20, … of one attempt; their seqs are 2, 3, ….
Log log_of(ObjectStore& store, std::uint64_t commits) {
  Log log(store);
  log.ensure_job(std::string(64, 'a'));
  log.claim({});
  for (std::uint64_t i = 1; i <= commits; ++i) log.append(commit_of(10 * i, 1));
  return log;
}

TEST(Retention, LeavesTheNewestCommits) {
  const auto store = fresh_memory_store();
  const Log log = log_of(*store, 5);
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 3, .loaded = {}, .own_commits = 5}),
              ElementsAre(2, 3));
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 9, .loaded = {}, .own_commits = 5}),
              IsEmpty());
}

TEST(Retention, NeverLeavesNone) {
  const auto store = fresh_memory_store();
  const Log log = log_of(*store, 2);
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 0, .loaded = {}, .own_commits = 2}),
              ElementsAre(2));
}

TEST(Retention, KeepsTheLoadedCommitUntilThereAreTwoOwnOnes) {
  const auto store = fresh_memory_store();
  const Log log = log_of(*store, 4);
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 1, .loaded = 4, .own_commits = 1}),
              ElementsAre(2, 3));
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 1, .loaded = 4, .own_commits = 2}),
              ElementsAre(2, 3, 4));
}

TEST(Retention, DoesNotCountADamagedCommitAsKept) {
  const auto store = fresh_memory_store();
  Log log = log_of(*store, 4);
  log.append(NoteRecord{.what = "damaged", .text = "", .commit = 5});
  EXPECT_THAT(commits_to_retire(log.view(), {.keep = 2, .loaded = {}, .own_commits = 4}),
              ElementsAre(2));
}

TEST(Retention, DeletesARetiredCommitOnlyAfterTheNextOne) {
  const auto store = fresh_memory_store();
  run_ranks(1, [&](Communicator& world) {
    Launch launch(*store, world, small_model(), ResumePolicy::automatic, 1);
    launch.save(10);
    launch.save(20);  // retires 10
    EXPECT_EQ(list_commits(*store).commits[0].status, CommitStatus::retired);
    EXPECT_THAT(keys_under(*store, "m/"),
                ElementsAre("m/000000000010.000001.000.json", "m/000000000020.000001.000.json"));
    launch.save(30);  // deletes 10, retires 20
    EXPECT_THAT(keys_under(*store, "m/"),
                ElementsAre("m/000000000020.000001.000.json", "m/000000000030.000001.000.json"));
    EXPECT_EQ(keys_under(*store, "s/").size(), 2U);
  });
}

TEST(Retention, KeepsWhatWasLoadedThroughTheFirstSaveOfTheNextLaunch) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10});
  run_ranks(1, [&](Communicator& world) {
    Launch launch(*store, world, small_model(), ResumePolicy::automatic, 1);
    ASSERT_TRUE(launch.load());
    launch.save(20);
    EXPECT_EQ(list_commits(*store).commits[0].status, CommitStatus::live);
    launch.save(30);
    EXPECT_EQ(list_commits(*store).commits[0].status, CommitStatus::retired);
  });
}

TEST(Sweep, RemovesWhatDeadAttemptsLeftAndNothingElse) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20, 30, 40}, small_model(), 2);  // 10, 20 retired, 10 deleted
  const SaveId orphan{.step = 50, .epoch = 1, .try_number = 0};
  const SaveId young{.step = 50, .epoch = 9, .try_number = 0};
  for (const SaveId& id : {orphan, young}) {
    store->create_if_absent(shard_key(id, 0), "x", 1);
    store->create_if_absent(manifest_key(id), "x", 1);
  }
  for (const char* key : {"t/000001.aa", "t/000009.bb", "s/readme.txt", "m/notes", "other"}) {
    store->create_if_absent(key, "x", 1);
  }
  store->create_if_absent("p/aa.a", "1 1\n", 1);
  store->create_if_absent("p/bb.a", "9 1\n", 1);
  run_ranks(1, [&](Communicator& world) {
    const Launch launch(*store, world, small_model());
    EXPECT_THAT(launch.opened.warnings, IsEmpty());
  });
  std::vector<std::string> rest = keys_under(*store, "");
  std::erase_if(rest, [](const std::string& key) { return key.starts_with("log/"); });
  std::vector<std::string> wanted = {"m/000000000030.000001.000.json",
                                     "m/000000000040.000001.000.json",
                                     manifest_key(young),
                                     "m/notes",
                                     "other",
                                     "p/bb.a",
                                     shard_key({.step = 30, .epoch = 1, .try_number = 0}, 0),
                                     shard_key({.step = 40, .epoch = 1, .try_number = 0}, 0),
                                     shard_key(young, 0),
                                     "s/readme.txt",
                                     "t/000009.bb"};
  EXPECT_THAT(rest, ::testing::UnorderedElementsAreArray(wanted));
}

TEST(Sweep, KeepsShardsWhoseCommitMayBeALostRecord) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20});
  flip_bit(*store, record_key(3), 40, 1);  // the COMMIT of step 20
  run_ranks(1, [&](Communicator& world) {
    const Launch launch(*store, world, small_model());
    EXPECT_THAT(launch.opened.warnings, Contains(HasSubstr("records of the log are lost")));
    EXPECT_EQ(launch.opened.resume->step, 10U);
  });
  EXPECT_THAT(keys_under(*store, "m/"), Contains("m/000000000020.000001.000.json"));
}

}  // namespace
}  // namespace lockstep
