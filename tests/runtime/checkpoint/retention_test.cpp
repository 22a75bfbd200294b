// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
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

/// The same with an eval_loss each; NaN: not evaluated.
Log log_of_losses(ObjectStore& store, const std::vector<double>& losses) {
  Log log(store);
  log.ensure_job(std::string(64, 'a'));
  log.claim({});
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CommitRecord commit = commit_of(10 * (i + 1), 1);
    if (!std::isnan(losses[i])) commit.eval_loss = losses[i];
    log.append(commit);
  }
  return log;
}

TEST(Retention, LeavesTheBestCommitsBesidesTheNewest) {
  const auto store = fresh_memory_store();
  // seqs 2 to 8; of the equal losses of 4 and 5 the newer is better.
  const Log log = log_of_losses(*store, {3.0, NAN, 1.5, 1.5, 1.25, NAN, 2.0});
  const auto retired = [&](std::uint64_t keep, std::uint64_t keep_best) {
    return commits_to_retire(
        log.view(), {.keep = keep, .keep_best = keep_best, .loaded = {}, .own_commits = 7});
  };
  EXPECT_THAT(retired(1, 0), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(retired(1, 1), ElementsAre(2, 3, 4, 5, 7));
  EXPECT_THAT(retired(1, 2), ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(retired(2, 4), ElementsAre(2, 3)) << "the newest is the fourth best";
  EXPECT_THAT(retired(1, 99), ElementsAre(3, 7)) << "never those without an evaluation";
}

TEST(Retention, DoesNotCountADamagedCommitAmongTheBest) {
  const auto store = fresh_memory_store();
  Log log = log_of_losses(*store, {3.0, 1.0, 2.0, 4.0});
  log.append(NoteRecord{.what = "damaged", .text = "", .commit = 3});
  EXPECT_THAT(
      commits_to_retire(log.view(), {.keep = 1, .keep_best = 1, .loaded = {}, .own_commits = 4}),
      ElementsAre(2, 3));
}

TEST(Retention, KeepsTheEvaluationOfACommitOverLaunches) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    launch.state.fill(10);
    TrainState scalars = scalars_of(10);
    scalars.eval_loss = 0.1F;
    const SaveResult saved = launch.checkpointer.save(scalars, launch.state.dict());
    EXPECT_EQ(saved.commit.eval_loss, double{0.1F});
    scalars = scalars_of(20);
    EXPECT_EQ(launch.checkpointer.save(scalars, launch.state.dict()).commit.eval_loss,
              std::nullopt);
  });
  const auto commits = list_commits(*store).commits;
  EXPECT_EQ(commits[0].commit.eval_loss, double{0.1F});
  EXPECT_EQ(commits[1].commit.eval_loss, std::nullopt);
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
  store->create_if_absent("p/cc.a", "2 1\n", 1);  // died after its probe, before its CLAIM
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

/// Keys of all objects but the log's.
std::vector<std::string> objects_of(ObjectStore& store) {
  std::vector<std::string> keys = keys_under(store, "");
  std::erase_if(keys, [](const std::string& key) { return key.starts_with("log/"); });
  return keys;
}

TEST(Garbage, TakesRetiredAndAbandonedObjectsAndNothingOfTheNewestAttempt) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20, 30, 40}, small_model(), 2);  // 10, 20 retired, 10 deleted
  run_ranks(1, [&](Communicator& world) {                     // attempt 2 deletes 20, retires 30
    Launch launch(*store, world, small_model(), ResumePolicy::automatic, 2);
    launch.load();
    launch.save(50);
  });
  const SaveId abandoned{.step = 50, .epoch = 1, .try_number = 0};
  const SaveId in_flight{.step = 60, .epoch = 2, .try_number = 0};
  store->create_if_absent(shard_key(abandoned, 0), "four", 1);
  store->create_if_absent(shard_key(in_flight, 0), "sixsix", 2);
  for (const char* key : {"t/000001.aa", "t/000002.bb", "s/readme.txt"}) {
    store->create_if_absent(key, "x", 1);
  }
  const std::vector<std::string> before = objects_of(*store);
  const auto records = keys_under(*store, "log/");

  const GarbageReport listed = collect_garbage(*store, GarbageMode::list);
  EXPECT_EQ(objects_of(*store), before);
  const GarbageReport removed = collect_garbage(*store, GarbageMode::remove);
  EXPECT_THAT(removed.warnings, IsEmpty());
  EXPECT_EQ(removed.attempt, 2U);
  EXPECT_EQ(removed.kept_objects, 1U);
  EXPECT_EQ(removed.kept_bytes, 6U);

  const SaveId retired{.step = 30, .epoch = 1, .try_number = 0};
  const std::vector<std::string> garbage = {shard_key(retired, 0), shard_key(abandoned, 0),
                                            manifest_key(retired), "t/000001.aa"};
  std::vector<std::string> told;
  for (const GarbageObject& object : removed.objects) {
    EXPECT_TRUE(object.removed);
    told.push_back(object.key);
  }
  EXPECT_THAT(told, ::testing::UnorderedElementsAreArray(garbage));
  EXPECT_EQ(listed.objects.size(), removed.objects.size());
  std::vector<std::string> rest = before;
  std::erase_if(rest, [&](const std::string& key) {
    return std::find(garbage.begin(), garbage.end(), key) != garbage.end();
  });
  EXPECT_EQ(objects_of(*store), rest);
  EXPECT_EQ(keys_under(*store, "log/"), records) << "no CLAIM, no NOTE";
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
  EXPECT_EQ(load_newest(*store, 1).result->commit.step, 50U);
  EXPECT_THAT(collect_garbage(*store, GarbageMode::list).objects, IsEmpty());
}

TEST(Garbage, TakesNoShardsWhileRecordsAreLost) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20, 30}, small_model(), 1);
  flip_bit(*store, record_key(2), 40, 1);
  const auto before = objects_of(*store);
  const GarbageReport report = collect_garbage(*store, GarbageMode::remove);
  EXPECT_THAT(report.warnings, Contains(HasSubstr("records of the log are lost")));
  EXPECT_FALSE(report.log_damages.empty());
  EXPECT_EQ(objects_of(*store), before);
}

TEST(Garbage, RefusesAStoreWithoutALog) {
  const auto store = fresh_memory_store();
  store->create_if_absent("s/other", "x", 1);
  EXPECT_THROW(collect_garbage(*store, GarbageMode::remove), DataError);
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
