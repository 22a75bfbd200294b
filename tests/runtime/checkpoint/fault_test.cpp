// SPDX-License-Identifier: Apache-2.0
// The n-th call to the store fails, or the process dies there, for every n: afterwards the old or
// the new commit loads, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/runtime/store/faulty_store.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using namespace testing;

/// Loads and checks every byte: the step, which must be one of two.
std::uint64_t check_old_or_new(ObjectStore& store, std::uint64_t before, std::uint64_t after) {
  EXPECT_THAT(verify_checkpoints(store).damages, IsEmpty());
  const Loaded loaded = load_newest(store, 1);
  if (!loaded.result) {
    ADD_FAILURE() << "nothing loads";
    return 0;
  }
  const std::uint64_t step = loaded.result->commit.step;
  EXPECT_THAT(step, AnyOf(before, after));
  EXPECT_THAT(loaded.bytes, Each(bytes_of_step(small_model(), step)));
  EXPECT_THAT(loaded.result->warnings, IsEmpty());
  return step;
}

/// A launch of two ranks that saves step 20, with the n-th call of one rank failing, for n = 1, 2,
/// … until it gets through.
void save_with_faults_on(int failing_rank, Fault fault) {
  bool saw_old = false;
  for (std::int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 200) << "the save never got through";
    const auto store = fresh_memory_store();
    save_steps(*store, 2, {10});
    bool saved = false;
    bool reached = false;
    run_ranks(2, [&](Communicator& world) {
      FaultyStore faulty(*store, world.rank() == failing_rank ? n : INT64_MAX, fault);
      try {
        Launch launch(faulty, world, small_model());
        launch.load();
        launch.save(20);
        if (world.rank() == 0) saved = true;
      } catch (const Error& error) {
        EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere) << error.what();
      }
      if (world.rank() == failing_rank) reached = faulty.has_failed();
    });
    const std::uint64_t step = check_old_or_new(*store, 10, 20);
    saw_old = saw_old || step == 10;
    if (saved) {
      EXPECT_EQ(step, 20U) << "what save() called durable is gone";
    }
    if (!reached) break;
  }
  EXPECT_TRUE(saw_old);
}

TEST(FailingStore, NeverLosesACommitWhenACallOfRankZeroFails) {
  save_with_faults_on(0, Fault::error);
}
TEST(FailingStore, NeverLosesACommitWhenAnAnswerToRankZeroIsLost) {
  save_with_faults_on(0, Fault::lost_answer);
}
TEST(FailingStore, NeverLosesACommitWhenAWriterFails) { save_with_faults_on(1, Fault::error); }
TEST(FailingStore, NeverLosesACommitWhenAWriterIsCutShort) {
  save_with_faults_on(1, Fault::half_write);
}

TEST(FailingStore, LetsTheNextSaveOfTheSameStepGoThrough) {
  for (std::int64_t n = 1; n <= 12; ++n) {
    const auto store = fresh_memory_store();
    run_ranks(2, [&](Communicator& world) {
      // Counting starts before open(), whose calls on rank 1 are none.
      FaultyStore faulty(*store, world.rank() == 1 ? n : INT64_MAX, Fault::error);
      Launch launch(faulty, world, small_model());
      bool failed = false;
      try {
        launch.save(10);
      } catch (const Error&) {
        failed = true;
      }
      if (failed) {
        world.barrier().wait();  // the other rank takes its shard away too
        EXPECT_THAT(keys_under(*store, "s/"), IsEmpty()) << "left behind by call " << n;
        EXPECT_THAT(keys_under(*store, "m/"), IsEmpty());
        world.barrier().wait();
        launch.save(10);
      }
    });
    EXPECT_THAT(load_newest(*store, 1).bytes, Each(bytes_of_step(small_model(), 10)));
  }
}

TEST(FailingStore, EndsALoadWithTheStoresErrorAndNotesNothing) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10}, large_model());
  int failures = 0;
  for (std::int64_t n = 1; n <= 20; ++n) {
    run_ranks(2, [&](Communicator& world) {
      FaultyStore faulty(*store, world.rank() == 1 ? n : INT64_MAX, Fault::error);
      Launch launch(faulty, world, large_model());
      try {
        launch.load();
      } catch (const Error& error) {
        EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
        if (world.rank() == 0) ++failures;
      }
    });
  }
  EXPECT_GT(failures, 3);
  EXPECT_THAT(verify_checkpoints(*store).damages, IsEmpty());
  EXPECT_THAT(load_newest(*store, 1, large_model()).bytes, Each(bytes_of_step(large_model(), 10)));
}

/// Runs `body` in a child process; its exit status.
int in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", describe(error).c_str());
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// A launch of two ranks that saves step 20 and dies at the n-th call of `rank`.
int save_and_die(const std::string& uri, int rank, std::int64_t n, Fault fault) {
  return in_child([&] {
    run_ranks(2, [&](Communicator& world) {
      const auto store = ObjectStore::open(uri);
      FaultyStore faulty(*store, world.rank() == rank ? n : INT64_MAX, fault);
      Launch launch(faulty, world, small_model());
      launch.load();
      launch.save(20);
    });
  });
}

/// Every third call: the tests above fail every one.
void kill_at_calls_of(int rank, Fault fault) {
  const testing_support::ScratchFolder start;
  const std::string start_uri = "file:" + start.path().string();
  ASSERT_EQ(in_child([&] { save_steps(*ObjectStore::open(start_uri), 2, {10}); }), 0);
  for (std::int64_t n = 1;; n += 3) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 200);
    const testing_support::ScratchFolder scratch;
    const std::string uri = "file:" + scratch.path().string();
    const auto store = ObjectStore::open(uri);
    std::filesystem::copy(start.path(), scratch.path(), std::filesystem::copy_options::recursive);
    const int status = save_and_die(uri, rank, n, fault);
    ASSERT_THAT(status, AnyOf(0, FaultyStore::kExitStatus));
    const std::uint64_t step = check_old_or_new(*store, 10, 20);
    // What died before its CLAIM had the epoch of the launch that checks: it goes with the next.
    load_newest(*store, 1);
    EXPECT_THAT(keys_under(*store, "t/"), IsEmpty());
    EXPECT_THAT(keys_under(*store, "p/"), IsEmpty());
    EXPECT_EQ(keys_under(*store, "m/").size(), step == 10 ? 1U : 2U);
    if (status != 0) continue;
    EXPECT_EQ(step, 20U);
    return;
  }
}

Manifest newest_manifest(ObjectStore& store) {
  const LogView view = read_log(store);
  return read_manifest(store, view, *view.newest());
}

void replace(ObjectStore& store, const std::string& key, const std::string& bytes) {
  store.remove(key);
  store.create_if_absent(key, bytes, 1);
}

TEST(ReplacedShard, IsNeverMixedWithTheOneThatWasThere) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10, 20});
  const Manifest manifest = newest_manifest(*store);
  const std::string key = manifest.shards[1].key;
  const std::string same = store->read(key).value();
  int changed = 0;
  run_ranks(1, [&](Communicator& world) {
    FaultyStore watched(*store, INT64_MAX, Fault::error);
    // When the head has been read: the same bytes again, so that no checksum can tell.
    watched.after_read = [&](std::string_view read, std::uint64_t) {
      if (read == key && std::exchange(changed, 1) == 0) replace(*store, key, same);
    };
    Launch launch(watched, world, small_model());
    try {
      launch.load();
      FAIL() << "loaded";
    } catch (const ObjectChangedError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(key), HasSubstr("changed while it was read")));
      EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
    }
  });
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(load_newest(*store, 2).result->commit.step, 20U) << "nothing is noted as damaged";
}

TEST(ReplacedShard, IsNamedWhereItIsNotACopy) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  const std::string older = newest_manifest(*store).shards[1].key;
  save_steps(*store, 2, {20});
  const Manifest manifest = newest_manifest(*store);
  const ManifestShard& shard = manifest.shards[1];
  EXPECT_EQ(shard.etag, store->stat(shard.key)->etag);
  replace(*store, shard.key, store->read(older).value());
  const Loaded loaded = load_newest(*store, 2);
  EXPECT_EQ(loaded.result->commit.step, 10U);
  ASSERT_THAT(loaded.result->warnings, SizeIs(1));
  EXPECT_THAT(loaded.result->warnings[0],
              AllOf(HasSubstr(shard.key), HasSubstr("it is not the object that was saved"),
                    HasSubstr(shard.etag)));
}

TEST(ReplacedShard, LoadsWhereItIsACopy) {
  // As after a move to another bucket: multipart uploads of other parts have other etags.
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  for (const ManifestShard& shard : newest_manifest(*store).shards) {
    replace(*store, shard.key, store->read(shard.key).value());
    EXPECT_NE(shard.etag, store->stat(shard.key)->etag);
  }
  const Loaded loaded = load_newest(*store, 3);
  EXPECT_THAT(loaded.result->warnings, IsEmpty());
  EXPECT_THAT(loaded.bytes, Each(bytes_of_step(small_model(), 10)));
}

TEST(KilledProcess, LeavesTheOldOrTheNewCommitWhereverRankZeroDies) {
  kill_at_calls_of(0, Fault::exit_before);
}
TEST(KilledProcess, LeavesTheOldOrTheNewCommitWhereverAWriterDies) {
  kill_at_calls_of(1, Fault::exit_after);
}

TEST(Launch, IsFencedIfAnotherClaimsAndSweepsDuringItsProbe) {
  const auto store = fresh_memory_store();
  FaultyStore raced(*store, -1, Fault::error);
  raced.after_create = [&](std::string_view key) {
    raced.after_create = {};
    ASSERT_TRUE(key.starts_with("p/"));
    save_steps(*store, 1, {10});
  };
  EXPECT_THROW(save_steps(raced, 1, {20}), FencedError);
  EXPECT_THAT(keys_under(*store, "p/"), IsEmpty());
  EXPECT_EQ(load_newest(*store, 1).result->commit.step, 10U);
}

TEST(KilledProcess, ResumesFromTheCommitExactlyIfItsRecordIsThere) {
  // Case P31: (a) half a shard, (b) all shards, (b2) the manifest too, (c) after COMMIT.
  struct Kill {
    const char* prefix;  // the process dies when an object under it is to be created
    bool after;
    std::uint64_t resumes_at;
  };
  class DyingStore final : public ObjectStore {
   public:
    DyingStore(ObjectStore& inner, Kill kill) : inner_(inner), kill_(kill) {}
    std::string uri() const override { return inner_.uri(); }
    std::optional<std::string> read(std::string_view key) override { return inner_.read(key); }
    std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                    std::span<std::byte> into, std::string_view etag) override {
      return inner_.read(key, offset, into, etag);
    }
    std::optional<ObjectInfo> stat(std::string_view key) override { return inner_.stat(key); }
    Creation create_if_absent(std::string_view key, std::string_view bytes,
                              std::uint64_t epoch) override {
      const bool dies = armed && key.starts_with(kill_.prefix);
      if (dies && !kill_.after) _exit(FaultyStore::kExitStatus);
      const Creation result = inner_.create_if_absent(key, bytes, epoch);
      if (dies) _exit(FaultyStore::kExitStatus);
      return result;
    }
    std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                         std::uint64_t epoch) override {
      auto writer = inner_.create(key, size, epoch);
      if (armed && key.starts_with(kill_.prefix)) {
        const std::string half(size / 2, 'x');
        writer->write(0, std::as_bytes(std::span(half)));
        _exit(FaultyStore::kExitStatus);
      }
      return writer;
    }
    std::vector<ObjectInfo> list(std::string_view prefix) override { return inner_.list(prefix); }
    void remove(std::string_view key) override { inner_.remove(key); }
    std::vector<UnfinishedObject> unfinished(std::string_view prefix) override {
      return inner_.unfinished(prefix);
    }
    void abandon(const UnfinishedObject& object) override { inner_.abandon(object); }
    bool armed = false;

   private:
    ObjectStore& inner_;
    Kill kill_;
  };
  for (const Kill& kill : {Kill{.prefix = "s/", .after = false, .resumes_at = 10},
                           Kill{.prefix = "m/", .after = false, .resumes_at = 10},
                           Kill{.prefix = "m/", .after = true, .resumes_at = 10},
                           Kill{.prefix = "log/", .after = false, .resumes_at = 10},
                           Kill{.prefix = "log/", .after = true, .resumes_at = 20}}) {
    const testing_support::ScratchFolder scratch;
    const auto store = ObjectStore::open("file:" + scratch.path().string());
    ASSERT_EQ(in_child([&] { save_steps(*store, 2, {10}); }), 0);
    const int status = in_child([&] {
      run_ranks(2, [&](Communicator& world) {
        DyingStore dying(*store, kill);
        Launch launch(dying, world, small_model());
        launch.load();
        dying.armed = world.rank() == (kill.prefix[0] == 's' ? 1 : 0);
        launch.save(20);
      });
    });
    EXPECT_EQ(status, FaultyStore::kExitStatus);
    EXPECT_EQ(check_old_or_new(*store, 10, 20), kill.resumes_at) << kill.prefix << kill.after;
  }
}

}  // namespace
}  // namespace lockstep
