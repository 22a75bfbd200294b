// SPDX-License-Identifier: Apache-2.0
// Saves that go on in the background: bits, order, failures, stores that hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/save_worker.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/runtime/store/faulty_store.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace testing;
using namespace std::chrono_literals;

/// New objects wait at a gate.
class GatedStore final : public ObjectStore {
 public:
  explicit GatedStore(ObjectStore& inner) : inner_(inner) {}

  void close() { set(false); }
  void open_gate() { set(true); }

  std::string uri() const override { return inner_.uri(); }
  std::optional<std::string> read(std::string_view key) override { return inner_.read(key); }
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    return inner_.read(key, offset, into, etag);
  }
  std::optional<ObjectInfo> stat(std::string_view key) override { return inner_.stat(key); }
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t epoch) override {
    pass();
    return inner_.create_if_absent(key, bytes, epoch);
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t epoch) override {
    pass();
    return inner_.create(key, size, epoch);
  }
  std::vector<ObjectInfo> list(std::string_view prefix) override { return inner_.list(prefix); }
  void remove(std::string_view key) override { inner_.remove(key); }
  std::vector<UnfinishedObject> unfinished(std::string_view prefix) override {
    return inner_.unfinished(prefix);
  }
  void abandon(const UnfinishedObject& object) override { inner_.abandon(object); }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

  ObjectStore& inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

bool begin(Launch& launch, std::uint64_t step) {
  launch.state.fill(step);
  return launch.checkpointer.begin_save(scalars_of(step), launch.state.dict());
}

/// The steps that became commits; failures are no steps.
std::vector<std::uint64_t> saved_steps(const std::vector<SaveEnd>& ends) {
  std::vector<std::uint64_t> steps;
  for (const SaveEnd& end : ends) {
    if (end.saved) steps.push_back(end.step);
  }
  return steps;
}

TEST(BackgroundSave, KeepsTheStateOfItsStepWhateverComesAfter) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto store = fresh_memory_store();
    run_ranks(ranks, [&](Communicator& world) {
      Launch launch(*store, world, small_model());
      EXPECT_TRUE(begin(launch, 10));
      launch.state.fill(99);
      EXPECT_EQ(launch.checkpointer.saves_in_flight(), 1);
      const auto ends = launch.checkpointer.drain();
      EXPECT_THAT(saved_steps(ends), ElementsAre(10));
      EXPECT_EQ(ends[0].saved->commit.step, 10U);
      EXPECT_EQ(launch.checkpointer.saves_in_flight(), 0);
    });
    const Loaded loaded = load_newest(*store, 3);
    EXPECT_EQ(loaded.result->state, scalars_of(10));
    EXPECT_THAT(loaded.bytes, Each(bytes_of_step(small_model(), 10)));
    EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
  }
}

/// What lies behind the heads, which name the job, of all shards of step 10.
std::string payload_of(ObjectStore& store) {
  std::string payload;
  const std::string manifest = store.read(manifest_key({.step = 10, .epoch = 1})).value();
  for (const ManifestShard& shard : decode_manifest(manifest).shards) {
    payload += store.read(shard.key).value().substr(shard.head_bytes) + "|";
  }
  return payload;
}

TEST(BackgroundSave, WritesTheBytesOfASynchronousOne) {
  for (const int ranks : {1, 3}) {
    const auto at_once = fresh_memory_store();
    save_steps(*at_once, ranks, {10});
    const auto background = fresh_memory_store();
    run_ranks(ranks, [&](Communicator& world) {
      Launch launch(*background, world, small_model());
      begin(launch, 10);
      launch.checkpointer.drain();
    });
    EXPECT_EQ(payload_of(*background), payload_of(*at_once));
  }
}

TEST(BackgroundSave, LetsAllRanksGoOnWhileOneWriterIsSlow) {
  const auto store = fresh_memory_store();
  run_ranks(3, [&](Communicator& world) {
    GatedStore gated(*store);
    Launch launch(gated, world, small_model());
    if (world.rank() == 1) gated.close();
    EXPECT_TRUE(begin(launch, 10));
    EXPECT_TRUE(begin(launch, 20));
    for (int step = 0; step < 20; ++step) {
      world.barrier().wait();  // what training would do
      EXPECT_THAT(launch.checkpointer.poll(), IsEmpty());
    }
    EXPECT_FALSE(begin(launch, 30)) << "both slots are busy";
    EXPECT_EQ(launch.checkpointer.saves_in_flight(), 2);
    EXPECT_THROW(launch.checkpointer.save(scalars_of(30), launch.state.dict()), UsageError);
    gated.open_gate();
    EXPECT_THAT(saved_steps(launch.checkpointer.drain()), ElementsAre(10, 20));
    EXPECT_TRUE(begin(launch, 40));
    EXPECT_THAT(saved_steps(launch.checkpointer.drain()), ElementsAre(40));
    launch.save(50);
  });
  const LogView view = read_log(*store);
  std::vector<std::uint64_t> steps;
  for (const Commit& commit : view.commits()) steps.push_back(commit.record.step);
  EXPECT_THAT(steps, ElementsAre(10, 20, 40, 50));
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
}

TEST(BackgroundSave, EndsWithPollAlone) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    begin(launch, 10);
    std::vector<SaveEnd> ends;
    while (launch.checkpointer.saves_in_flight() > 0) {
      for (SaveEnd& end : launch.checkpointer.poll()) ends.push_back(std::move(end));
    }
    EXPECT_THAT(saved_steps(ends), ElementsAre(10));
  });
}

/// The n-th call of one rank fails, for n = 1, 2, … until the save gets through: all ranks hear of
/// it, the old commit stands, the next save is made.
void fail_background_save_on(int failing_rank, Fault fault) {
  int failures = 0;
  for (std::int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 100) << "the save never got through";
    const auto store = fresh_memory_store();
    bool reached = false;
    run_ranks(2, [&](Communicator& world) {
      FaultyStore faulty(*store, INT64_MAX, fault);
      Launch launch(faulty, world, small_model());
      launch.save(10);
      if (world.rank() == failing_rank) faulty.arm(n);
      begin(launch, 20);
      const auto ends = launch.checkpointer.drain();
      ASSERT_THAT(ends, SizeIs(1));
      const bool has_failed = any(world, faulty.has_failed());
      if (world.rank() == 0) reached = has_failed;
      if (ends[0].failure) {
        EXPECT_EQ(ends[0].failure->rank, failing_rank);
        EXPECT_EQ(ends[0].failure->outcome, Outcome::failed_elsewhere);
        EXPECT_THAT(ends[0].failure->what,
                    HasSubstr(fault == Fault::no_memory ? "no memory" : "injected fault"));
        if (world.rank() == 0) ++failures;
        const auto newest = list_commits(*store).commits.back();
        EXPECT_THAT(newest.commit.step, AnyOf(10U, 20U));  // 20: its answer was lost
        EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
        world.barrier().wait();
      }
      if (!has_failed) return;
      begin(launch, 30);
      EXPECT_THAT(saved_steps(launch.checkpointer.drain()), ElementsAre(30));
    });
    const std::uint64_t last = reached ? 30 : 20;
    const Loaded loaded = load_newest(*store, 1);
    EXPECT_EQ(loaded.result->commit.step, last);
    EXPECT_TRUE(loaded.bytes[0] == bytes_of_step(small_model(), last));
    EXPECT_THAT(loaded.result->warnings, IsEmpty());
    if (!reached) break;
  }
  EXPECT_GT(failures, 2);
}

TEST(BackgroundSave, FailsOnAllRanksWhenAWriterFails) { fail_background_save_on(1, Fault::error); }
TEST(BackgroundSave, FailsOnAllRanksWhenRankZeroFails) { fail_background_save_on(0, Fault::error); }
TEST(BackgroundSave, FailsOnAllRanksWhenAnAnswerIsLost) {
  fail_background_save_on(0, Fault::lost_answer);
}
TEST(BackgroundSave, FailsOnAllRanksWhenAWriteIsCutShort) {
  fail_background_save_on(1, Fault::half_write);
}

TEST(BackgroundSave, FailsOnAllRanksWhenAWriterHasNoMemory) {
  fail_background_save_on(0, Fault::no_memory);
  fail_background_save_on(1, Fault::no_memory);
}

/// Two ranks of which rank 1 has `left` bytes for copies at each of the first times that it asks.
struct ScarceLaunch {
  ScarceLaunch(ObjectStore& store, Communicator& world, std::vector<std::uint64_t> left)
      : state(small_model()),
        checkpointer(store, world,
                     {.mesh = {.dp = static_cast<std::uint64_t>(world.size())},
                      .memory_left = [left = std::move(left), is_scarce = world.rank() == 1,
                                      asked = std::size_t{0}]() mutable {
                        const bool is_told = is_scarce && asked < left.size();
                        return is_told ? std::optional(left[asked++]) : std::nullopt;
                      }}) {
    checkpointer.open({.model = state.model()});
  }
  bool begin(std::uint64_t step) {
    state.fill(step);
    return checkpointer.begin_save(scalars_of(step), state.dict());
  }

  TestState state;
  Checkpointer checkpointer;
};

TEST(BackgroundSave, FailsOnAllRanksWhereOneHasNoMemoryForACopyAndTheNextIsMade) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    ScarceLaunch launch(*store, world, {1000});
    try {
      launch.begin(10);
      ADD_FAILURE() << "begun";
    } catch (const Error& error) {
      EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
      EXPECT_THAT(error.what(), HasSubstr("no memory for a copy of"));
      EXPECT_THAT(error.what(), HasSubstr("is 1000"));
      EXPECT_THAT(error.hint(), HasSubstr("checkpoint.async = false"));
    }
    EXPECT_EQ(launch.checkpointer.saves_in_flight(), 0);
    EXPECT_TRUE(launch.begin(20));
    EXPECT_THAT(saved_steps(launch.checkpointer.drain()), ElementsAre(20));
  });
}

TEST(BackgroundSave, GoesOnWithOneSlotWhereThereIsNoMemoryForTwo) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    GatedStore gated(*store);
    ScarceLaunch launch(gated, world, {UINT64_MAX, 1000});
    gated.close();
    EXPECT_TRUE(launch.begin(10));
    EXPECT_FALSE(launch.begin(20)) << "the second copy has no memory";
    EXPECT_FALSE(launch.begin(30)) << "there would be memory now, but one slot it is";
    EXPECT_EQ(launch.checkpointer.saves_in_flight(), 1);
    gated.open_gate();
    const auto first = launch.checkpointer.drain();
    EXPECT_THAT(saved_steps(first), ElementsAre(10));
    EXPECT_THAT(first[0].saved->warnings, ElementsAre(HasSubstr("saves go on with one copy")));
    EXPECT_TRUE(launch.begin(40));
    const auto second = launch.checkpointer.drain();
    EXPECT_THAT(saved_steps(second), ElementsAre(40));
    EXPECT_THAT(second[0].saved->warnings, IsEmpty()) << "said once";
  });
  EXPECT_THAT(load_newest(*store, 1).bytes, Each(bytes_of_step(small_model(), 40)));
}

TEST(BackgroundSave, TakesAwayWhatAFailedSaveHasWritten) {
  const auto store = fresh_memory_store();
  run_ranks(3, [&](Communicator& world) {
    // The first call of rank 2: the others have written their shards.
    FaultyStore faulty(*store, world.rank() == 2 ? 1 : INT64_MAX, Fault::error);
    Launch launch(faulty, world, small_model());
    begin(launch, 10);
    EXPECT_TRUE(launch.checkpointer.drain().at(0).failure);
    world.barrier().wait();
    EXPECT_THAT(keys_under(*store, "s/"), IsEmpty());
    EXPECT_THAT(keys_under(*store, "m/"), IsEmpty());
  });
}

TEST(BackgroundSave, GivesUpOnAStoreThatDoesNotAnswerAndNamesIt) {
  const auto store = fresh_memory_store();
  run_ranks(3, [&](Communicator& world) {
    GatedStore gated(*store);
    TestState state(small_model());
    Checkpointer checkpointer(gated, world, {.mesh = {.dp = 3}, .silence_timeout = 500ms});
    checkpointer.open({.model = state.model()});
    if (world.rank() == 1) gated.close();
    state.fill(10);
    ASSERT_TRUE(checkpointer.begin_save(scalars_of(10), state.dict()));
    ASSERT_TRUE(checkpointer.begin_save(scalars_of(20), state.dict()));
    const auto ends = checkpointer.drain();
    EXPECT_THAT(ends, SizeIs(2));
    for (const SaveEnd& end : ends) {
      ASSERT_TRUE(end.failure);
      EXPECT_EQ(end.failure->rank, 1);
      EXPECT_THAT(end.failure->what, HasSubstr("no answer from store mem:"));
      EXPECT_THAT(end.failure->what, HasSubstr("000001.h5"));
    }
    // The thread still hangs: no save of either kind.
    EXPECT_FALSE(checkpointer.begin_save(scalars_of(30), state.dict()));
    try {
      checkpointer.save(scalars_of(30), state.dict());
      ADD_FAILURE() << "saved";
    } catch (const Error& error) {
      EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
      EXPECT_THAT(error.what(), HasSubstr("still hangs"));
    }
    world.barrier().wait();
    gated.open_gate();
    bool begun = false;
    for (int tries = 0; !begun && tries < 1000; ++tries) {
      std::this_thread::sleep_for(5ms);
      begun = checkpointer.begin_save(scalars_of(40), state.dict());
    }
    ASSERT_TRUE(begun);
    EXPECT_THAT(saved_steps(checkpointer.drain()), ElementsAre(40));
    world.barrier().wait();
    EXPECT_THAT(keys_under(*store, "s/"), SizeIs(3)) << "the late writer left its shard";
  });
}

TEST(BackgroundSave, IsFencedByANewerLaunch) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch zombie(*store, world, small_model());
    zombie.save(10);
    Launch newer(*store, world, small_model());
    begin(zombie, 20);
    const auto ends = zombie.checkpointer.drain();
    ASSERT_THAT(ends, SizeIs(1));
    ASSERT_TRUE(ends[0].failure);
    EXPECT_EQ(ends[0].failure->outcome, Outcome::fenced);
  });
  EXPECT_EQ(load_newest(*store, 1).result->commit.step, 10U);
}

TEST(BackgroundSave, OfAZombieLeavesNothingOfBothSlots) {
  const auto store = fresh_memory_store();
  std::vector<std::string> before;
  run_ranks(2, [&](Communicator& world) {
    GatedStore gated(*store);
    Launch zombie(gated, world, small_model());
    zombie.save(10);
    gated.close();
    begin(zombie, 20);
    begin(zombie, 30);
    {
      Launch newer(*store, world, small_model());
      newer.load();
      newer.save(11);
    }
    if (world.rank() == 0) before = keys_under(*store, "");
    world.barrier().wait();
    gated.open_gate();
    const auto ends = zombie.checkpointer.drain();
    ASSERT_THAT(ends, SizeIs(2));
    for (const SaveEnd& end : ends) EXPECT_EQ(end.failure->outcome, Outcome::fenced);
  });
  EXPECT_EQ(keys_under(*store, ""), before);
}

TEST(BackgroundSave, OfAZombieIsFencedWhereItsShardsAreSweptAway) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch zombie(*store, world, small_model());
    begin(zombie, 20);
    while (keys_under(*store, "s/").size() < 2) std::this_thread::yield();
    world.barrier().wait();
    Launch newer(*store, world, small_model());
    EXPECT_THAT(keys_under(*store, "s/"), IsEmpty());
    const auto ends = zombie.checkpointer.drain();
    ASSERT_THAT(ends, SizeIs(1));
    EXPECT_EQ(ends[0].failure->outcome, Outcome::fenced) << ends[0].failure->what;
    EXPECT_THROW(zombie.checkpointer.check_unclaimed(), Error);
    newer.checkpointer.check_unclaimed();
  });
}

TEST(BackgroundSave, NamesTheRankThatSavesSomethingElse) {
  const auto store = fresh_memory_store();
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    TrainState scalars = scalars_of(10);
    if (world.rank() == 1) scalars.tokens += 1;
    EXPECT_THROW(launch.checkpointer.begin_save(scalars, launch.state.dict()), UsageError);
    EXPECT_EQ(launch.checkpointer.saves_in_flight(), 0);
    EXPECT_TRUE(begin(launch, 20));
    EXPECT_THAT(saved_steps(launch.checkpointer.drain()), ElementsAre(20));
  });
}

TEST(BackgroundSave, MayBeLeftAlone) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  run_ranks(2, [&](Communicator& world) {
    Launch launch(*store, world, small_model());
    launch.load();
    begin(launch, 20);  // and nobody asks what became of it
  });
  EXPECT_EQ(load_newest(*store, 1).result->commit.step, 10U);
}

TEST(BackgroundSave, LeavesTheOldOrTheNewCommitWhereverTheProcessDies) {
  for (const int rank : {0, 1}) {
    for (std::int64_t n = 1 + rank;; n += 5) {
      SCOPED_TRACE(n);
      ASSERT_LT(n, 100);
      const testing_support::ScratchFolder scratch;
      const auto store = ObjectStore::open("file:" + scratch.path().string());
      const pid_t child = fork();
      if (child == 0) {
        run_ranks(2, [&](Communicator& world) {
          FaultyStore faulty(*store, INT64_MAX, Fault::exit_after);
          Launch launch(faulty, world, small_model());
          launch.save(10);
          if (world.rank() == rank) faulty.arm(n);
          begin(launch, 20);
          launch.state.fill(99);
          launch.checkpointer.drain();
        });
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_THAT(WEXITSTATUS(status), AnyOf(0, FaultyStore::kExitStatus));
      const Loaded loaded = load_newest(*store, 1);
      ASSERT_TRUE(loaded.result);
      EXPECT_THAT(loaded.result->warnings, IsEmpty());
      const std::uint64_t step = loaded.result->commit.step;
      EXPECT_THAT(step, AnyOf(10U, 20U));
      EXPECT_TRUE(loaded.bytes[0] == bytes_of_step(small_model(), step));
      if (WEXITSTATUS(status) != 0) continue;
      EXPECT_EQ(step, 20U);
      break;
    }
  }
}

TEST(SaveWorker, DoesTasksInOrderAndFirstOnesFirst) {
  SaveWorker worker;
  std::mutex gate;
  std::string order;
  gate.lock();
  worker.post([&] { const std::lock_guard lock(gate); });
  while (worker.idle()) {
  }
  worker.post([&] { order += "b"; });
  worker.post([&] { order += "c"; });
  worker.post_first([&] { order += "a"; });
  EXPECT_FALSE(worker.idle());
  gate.unlock();
  while (!worker.idle()) worker.wait_idle(1s);
  EXPECT_EQ(order, "abc");
}

TEST(SaveWorker, IsSilentOnlyWhileATaskGivesNoSign) {
  SaveWorker worker;
  EXPECT_FALSE(worker.is_silent_for(0ms));
  std::mutex gate;
  gate.lock();
  worker.post([&] { const std::lock_guard lock(gate); });
  std::this_thread::sleep_for(30ms);
  EXPECT_TRUE(worker.is_silent_for(5ms));
  EXPECT_FALSE(worker.is_silent_for(1h));
  gate.unlock();
  while (!worker.idle()) worker.wait_idle(1s);
  EXPECT_FALSE(worker.is_silent_for(0ms));
}

}  // namespace
}  // namespace lockstep
