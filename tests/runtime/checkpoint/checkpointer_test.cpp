// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;

TEST(Checkpointer, StartsAJobWithoutCommits) {
  const auto store = fresh_memory_store();
  run_ranks(3, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    EXPECT_EQ(launch.opened.attempt, 1U);
    EXPECT_FALSE(launch.opened.resume);
    EXPECT_THAT(launch.opened.warnings, IsEmpty());
    EXPECT_FALSE(launch.load());
  });
}

TEST(Checkpointer, GivesBackTheSameBytesOnAnyNumberOfRanks) {
  for (const int writers : {1, 2, 3, 4}) {
    const auto store = fresh_memory_store();
    save_steps(*store, writers, {10, 20});
    for (const int readers : {1, 2, 3, 4}) {
      const Loaded loaded = load_newest(*store, readers);
      ASSERT_TRUE(loaded.result);
      EXPECT_EQ(loaded.result->state, scalars_of(20));
      EXPECT_EQ(loaded.result->commit.step, 20U);
      EXPECT_EQ(loaded.result->commit.shards, static_cast<std::uint64_t>(writers));
      EXPECT_THAT(loaded.bytes, Each(bytes_of_step(small_model(), 20)))
          << writers << " -> " << readers;
    }
  }
}

TEST(Checkpointer, CountsAttemptsByTheirClaims) {
  const auto store = fresh_memory_store();
  for (const std::uint64_t attempt : {1U, 2U, 3U}) {
    run_ranks(2, [&](Communicator& world) {
      const Launch launch(*store, world, small_model());
      EXPECT_EQ(launch.opened.attempt, attempt);
    });
  }
}

TEST(Checkpointer, KeepsTensorsWithFewerElementsThanRanks) {
  // Case P26: 6 elements over 4 ranks, 1 over 3, 0 over 2.
  const std::vector<std::pair<Shape, int>> cases = {{{6}, 4}, {{1}, 3}, {{0}, 2}, {{0, 4}, 3}};
  for (const auto& [shape, writers] : cases) {
    const std::vector<TensorSpec> specs = {{"x", shape}};
    const auto store = fresh_memory_store();
    save_steps(*store, writers, {10}, specs);
    for (const int readers : {4, 3, 2, 1}) {
      EXPECT_THAT(load_newest(*store, readers, specs).bytes, Each(bytes_of_step(specs, 10)));
    }
  }
}

TEST(Checkpointer, StoresNoPaddingSoThatAnyWorldSizeMayLoad) {
  // Case P27: 10 elements saved from 3 ranks.
  const std::vector<TensorSpec> specs = {{"m", {10}}};
  const auto store = fresh_memory_store();
  save_steps(*store, 3, {10}, specs);
  for (const int readers : {2, 4, 1, 3}) {
    EXPECT_THAT(load_newest(*store, readers, specs).bytes, Each(bytes_of_step(specs, 10)));
  }
  EXPECT_EQ(show_commit(*store).parameters, 10U);
}

TEST(Checkpointer, KeepsScalarsOfEveryTypeAsScalars) {
  // Case P30.
  const std::vector<TensorSpec> specs = {
      {"temperature", {}}, {"count", {}, DType::i64}, {"none", {0, 4}}};
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, specs);
    launch.state.fill(1);
    *launch.state.dict().find("temperature", StateKind::param)->tensor.as<float>() = 7.5F;
    *launch.state.dict().find("count", StateKind::param)->tensor.as<std::int64_t>() = 3;
    launch.checkpointer.save(scalars_of(1), launch.state.dict());
  });
  run_ranks(3, [&](Communicator& world) {
    Launch launch(*store, world, specs);
    ASSERT_TRUE(launch.load());
    EXPECT_EQ(*launch.state.dict().find("temperature", StateKind::param)->tensor.as<float>(), 7.5F);
    EXPECT_EQ(*launch.state.dict().find("count", StateKind::param)->tensor.as<std::int64_t>(), 3);
  });
  for (const TensorLine& tensor : show_commit(*store).tensors) {
    EXPECT_EQ(tensor.shape.size(), tensor.name == "none" ? 2U : 0U);
  }
}

TEST(Checkpointer, KeepsEveryNameAsItIs) {
  // Case P33: plain HDF5 fails for foo after foo/bar and turns x//y into x/y.
  std::vector<TensorSpec> specs;
  for (const std::string& name :
       {std::string("foo/bar"), std::string("foo"), std::string("a"), std::string("a/b"),
        std::string("x//y"), std::string("."), std::string(".."), std::string("layers.0.weight"),
        std::string("größe"), std::string(70'000, 'n'), std::string(), std::string("%"),
        std::string("a%~1"), std::string("tab\tnewline\n")}) {
    specs.push_back({name, {5}});
  }
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, specs);
  EXPECT_THAT(load_newest(*store, 3, specs).bytes, Each(bytes_of_step(specs, 10)));
  std::vector<std::string> names;
  for (const TensorLine& tensor : show_commit(*store).tensors) names.push_back(tensor.name);
  for (const TensorSpec& spec : specs) EXPECT_THAT(names, Contains(spec.name));
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
}

TEST(Checkpointer, KeepsThousandsOfParametersAndALargeIndex) {
  // Case P28: 3,117 names, an index of more than 200,000 bytes.
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 3117; ++i) {
    specs.push_back(
        {"transformer.h." + std::to_string(i) + ".attn.c_attn.weight", {2}, DType::bf16});
  }
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, specs);
  EXPECT_GT(store->size("m/000000000010.000001.000.json").value(), 200'000U);
  EXPECT_THAT(load_newest(*store, 1, specs).bytes, Each(bytes_of_step(specs, 10)));
}

TEST(Checkpointer, SavesWhatIsThereEachTime) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    launch.save(10);
    launch.save(20);
    launch.load();
    EXPECT_EQ(launch.state.bytes(), bytes_of_step(small_model(), 20));
  });
}

TEST(Checkpointer, MaySaveOneStepTwice) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    launch.save(10);
    launch.state.fill(99);
    launch.checkpointer.save(scalars_of(10), launch.state.dict());
  });
  EXPECT_THAT(load_newest(*store, 1).bytes, Each(bytes_of_step(small_model(), 99)));
}

TEST(Checkpointer, RemembersWhichCommitAStateDescendsFrom) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10, 20});
  save_steps(*store, 1, {30});
  const LogView view = read_log(*store);
  const auto& commits = view.commits();
  ASSERT_EQ(commits.size(), 3U);
  EXPECT_EQ(commits[0].record.parent_seq, std::nullopt);
  EXPECT_EQ(commits[1].record.parent_seq, commits[0].seq);
  EXPECT_EQ(commits[2].record.parent_seq, commits[1].seq);
}

TEST(Checkpointer, RefusesAnotherModelAndListsTheParameters) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10});
  const std::vector<std::string> before = keys_under(*store, "");
  const std::vector<TensorSpec> other = {{"transformer.wte.weight", {60, 51}},
                                         {"transformer.h.0.ln_1.bias", {50}},
                                         {"lm_head.weight", {60, 50}},
                                         {"temperature", {}},
                                         {"empty", {0, 4}}};
  std::atomic<int> refused{0};
  run_ranks(2, [&](Communicator& world) {
    try {
      const Launch launch(*store, world, other);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.outcome(), Outcome::config);
      EXPECT_THAT(error.what(), HasSubstr("added: lm_head.weight [60, 50]"));
      EXPECT_THAT(error.what(),
                  HasSubstr("shape changed: transformer.wte.weight [60, 50] -> [60, 51]"));
      EXPECT_THAT(error.what(), HasSubstr("removed: transformer.h.0.attn.c_attn.weight"));
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(keys_under(*store, ""), before) << "something was written";
}

TEST(Checkpointer, RefusesAnotherOptimizerAndListsItsState) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10});
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    StateDict params_only;
    for (const StateEntry& entry : launch.state.dict().entries()) {
      if (entry.kind != StateKind::v) params_only.bind(entry.name, entry.kind, entry.tensor);
    }
    try {
      launch.checkpointer.load(params_only);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.outcome(), Outcome::config);
      EXPECT_THAT(error.what(), HasSubstr("only in the checkpoint: transformer.wte.weight (v)"));
    }
  });
}

Outcome outcome_of_launch(ObjectStore& store, ResumePolicy policy) {
  Outcome outcome = Outcome::finished;
  run_ranks(1, [&](Communicator& world) {
    try {
      Launch launch(store, world, small_model(), policy);
      launch.load();
    } catch (const Error& error) {
      outcome = error.outcome();
    }
  });
  return outcome;
}

TEST(Checkpointer, FollowsTheResumePolicyBeforeItTouchesAnything) {
  const auto store = fresh_memory_store();
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::must), Outcome::no_checkpoint);
  EXPECT_THAT(keys_under(*store, ""), IsEmpty());
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::never), Outcome::finished);
  save_steps(*store, 1, {10});
  const std::vector<std::string> before = keys_under(*store, "");
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::never), Outcome::config);
  EXPECT_EQ(keys_under(*store, ""), before);
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::must), Outcome::finished);
}

TEST(Checkpointer, FallsBackFromADamagedCommitAndNotesIt) {
  struct Damaging {
    const char* what;
    std::function<void(ObjectStore&, const CommitDetail&)> damage;
  };
  const std::vector<Damaging> ways = {
      {"payload",
       [](ObjectStore& store, const CommitDetail& detail) {
         flip_bit(store, detail.shards[1].key, detail.shards[1].size - 1, 3);
       }},
      {"head", [](ObjectStore& store,
                  const CommitDetail& detail) { flip_bit(store, detail.shards[0].key, 100, 0); }},
      {"missing shard",
       [](ObjectStore& store, const CommitDetail& detail) { store.remove(detail.shards[1].key); }},
      {"truncated shard",
       [](ObjectStore& store, const CommitDetail& detail) {
         const std::string text = store.read(detail.shards[0].key).value();
         store.remove(detail.shards[0].key);
         store.create_if_absent(detail.shards[0].key, text.substr(0, text.size() / 2), 1);
       }},
      {"swapped shards",
       [](ObjectStore& store, const CommitDetail& detail) {
         const std::string text = store.read(detail.shards[0].key).value();
         store.remove(detail.shards[1].key);
         store.create_if_absent(detail.shards[1].key, text, 1);
       }},
      {"manifest",
       [](ObjectStore& store, const CommitDetail& /*detail*/) {
         flip_bit(store, "m/000000000020.000001.000.json", 200, 4);
       }},
      {"missing manifest", [](ObjectStore& store, const CommitDetail& /*detail*/) {
         store.remove("m/000000000020.000001.000.json");
       }}};
  for (const Damaging& way : ways) {
    SCOPED_TRACE(way.what);
    const auto store = fresh_memory_store();
    save_steps(*store, 2, {10, 20});
    way.damage(*store, show_commit(*store));
    const Loaded loaded = load_newest(*store, 3);
    ASSERT_TRUE(loaded.result);
    EXPECT_EQ(loaded.result->commit.step, 10U);
    EXPECT_THAT(loaded.bytes, Each(bytes_of_step(small_model(), 10)));
    EXPECT_THAT(loaded.result->warnings, Contains(HasSubstr("step 20 is damaged")));
    EXPECT_EQ(list_commits(*store).commits[1].status, CommitStatus::damaged);
    // Later launches agree without looking, and may commit lower steps.
    EXPECT_THAT(load_newest(*store, 1).result->warnings, IsEmpty());
    save_steps(*store, 1, {15});
    EXPECT_EQ(load_newest(*store, 1).result->commit.step, 15U);
  }
}

TEST(Checkpointer, EndsWith74WhenNoCommitIsWhole) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10, 20});
  for (const std::string& key : keys_under(*store, "s/")) flip_bit(*store, key, 99, 1);
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    try {
      launch.load();
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.outcome(), Outcome::no_checkpoint);
      EXPECT_THAT(error.what(), HasSubstr("step 20 is damaged"));
      EXPECT_THAT(error.what(), HasSubstr("step 10 is damaged"));
    }
  });
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::automatic), Outcome::no_checkpoint)
      << "a later launch must not begin at step 0";
}

TEST(Checkpointer, DoesNotBeginAtStepZeroWhereTheOnlyCommitRecordIsLost) {
  const auto store = fresh_memory_store();
  save_steps(*store, 1, {10});
  flip_bit(*store, record_key(2), 50, 2);
  EXPECT_EQ(outcome_of_launch(*store, ResumePolicy::automatic), Outcome::no_checkpoint);
}

TEST(Checkpointer, IsFencedByANewerLaunch) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch zombie(*store, world, small_model());
    zombie.save(10);
    Launch newer(*store, world, small_model());
    EXPECT_EQ(newer.opened.resume->step, 10U);
    try {
      zombie.save(20);
      ADD_FAILURE() << "not fenced";
    } catch (const Error& error) {
      EXPECT_EQ(error.outcome(), Outcome::fenced);
    }
    newer.load();
    newer.save(11);
  });
  EXPECT_EQ(load_newest(*store, 1).result->commit.step, 11U);
  EXPECT_EQ(keys_under(*store, "m/").size(), 2U) << "the zombie left its manifest";
}

TEST(Checkpointer, NamesTheRankThatSavesSomethingElse) {
  const auto store = fresh_memory_store();
  run_ranks(3, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    TrainState scalars = scalars_of(10);
    if (world.rank() == 2) scalars.data.position += 1;
    try {
      launch.checkpointer.save(scalars, launch.state.dict());
      ADD_FAILURE() << "saved";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2"));
    }
  });
  EXPECT_THAT(keys_under(*store, "s/"), IsEmpty());
}

TEST(Checkpointer, SaysWhenTheFolderIsNotShared) {
  const testing_support::ScratchFolder scratch;
  run_ranks(2, [&](Communicator& world) {
    // Each "host" sees a folder of its own.
    const auto store = ObjectStore::open(
        "file:" + (scratch.path() / ("host" + std::to_string(world.rank()))).string());
    Launch launch(*store, world, small_model());
    try {
      launch.save(10);
      ADD_FAILURE() << "committed";
    } catch (const Error& error) {
      EXPECT_THAT(error.hint(), HasSubstr("not shared"));
    }
  });
}

TEST(Checkpointer, RefusesTensorsThatAShardCannotHold) {
  const auto store = fresh_memory_store();
  run_ranks(1, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    StateDict state;
    state.bind("x", StateKind::param, Tensor::zeros({}, {2}, DType::f64));
    EXPECT_THROW(launch.checkpointer.save(scalars_of(1), state), UsageError);
    StateDict orphan;
    orphan.bind("x", StateKind::m, Tensor::zeros({}, {2}, DType::f32));
    EXPECT_THROW(launch.checkpointer.save(scalars_of(1), orphan), UsageError);
  });
}

TEST(Checkpointer, WritesShardsThatH5dumpReads) {
  if (std::system("command -v h5dump > /dev/null") != 0) GTEST_SKIP() << "h5dump is not installed";
  const testing_support::ScratchFolder scratch;
  const auto store = ObjectStore::open("file:" + scratch.path().string());
  save_steps(*store, 3, {10});
  int shards = 0;
  for (const std::string& key : keys_under(*store, "s/")) {
    const std::string file = "'" + (scratch.path() / key).string() + "'";
    EXPECT_EQ(std::system(("h5dump " + file + " > /dev/null").c_str()), 0) << key;
    ++shards;
  }
  EXPECT_EQ(shards, 3);
}

}  // namespace
}  // namespace lockstep
