// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/keys.h"
#include "tests/runtime/store/faulty_store.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing::Fault;
using testing::FaultyStore;
using ::testing::HasSubstr;

const std::string kModel(64, 'a');

std::unique_ptr<ObjectStore> fresh() { return ObjectStore::open("mem:" + random_hex(8)); }

CommitRecord commit_of(std::uint64_t step) {
  return {.step = step,
          .tokens = step,
          .manifest = {.key = "m/x.json", .size = 1, .sha256 = std::string(64, '0')},
          .bytes = 1,
          .shards = 1,
          .parent_seq = {}};
}

/// Appends JOB and CLAIM; the log of a launch.
Log launch(ObjectStore& store) {
  Log log(store);
  log.ensure_job(kModel);
  log.claim({});
  return log;
}

void damage(ObjectStore& store, std::uint64_t seq) {
  store.remove(record_key(seq));
  store.create_if_absent(record_key(seq), "not a record", 1);
}

TEST(Log, BeginsWithAJobAndTheFirstClaim) {
  const auto store = fresh();
  const Log log = launch(*store);
  EXPECT_EQ(log.epoch(), 1U);
  const LogView view = read_log(*store);
  EXPECT_EQ(view.next_seq(), 2U);
  EXPECT_EQ(view.fingerprint(), kModel);
  EXPECT_EQ(view.job().size(), 36U);
  EXPECT_TRUE(view.damages().empty());
}

TEST(Log, IsAdoptedByLaterLaunches) {
  const auto store = fresh();
  const Log first = launch(*store);
  const Log second = launch(*store);
  EXPECT_EQ(second.view().job(), first.view().job());
  EXPECT_EQ(second.epoch(), 2U);
}

TEST(Log, ResumesFromTheHighestSeqNotTheHighestStep) {
  const auto store = fresh();
  Log log = launch(*store);
  log.append(commit_of(30));
  log.append(commit_of(20));
  EXPECT_EQ(read_log(*store).newest()->record.step, 20U);
}

TEST(Log, TakesRetiredAndDamagedCommitsOut) {
  const auto store = fresh();
  Log log = launch(*store);
  const std::uint64_t first = log.append(commit_of(10));
  const std::uint64_t second = log.append(commit_of(20));
  const std::uint64_t third = log.append(commit_of(30));
  log.append(NoteRecord{.what = "damaged", .text = "", .commit = third});
  log.append(RetireRecord{.seqs = {first}, .reason = ""});
  log.append(NoteRecord{.what = "seen", .text = "says nothing about it", .commit = second});
  const LogView view = read_log(*store);
  EXPECT_EQ(view.newest()->seq, second);
  EXPECT_EQ(view.find(first)->status, CommitStatus::retired);
  EXPECT_EQ(view.find(third)->status, CommitStatus::damaged);
  EXPECT_EQ(view.newest(30), nullptr);
}

TEST(Log, IgnoresOtherNames) {
  const auto store = fresh();
  launch(*store);
  store->create_if_absent("log/README", "x", 1);
  store->create_if_absent("log/5.json", "x", 1);
  EXPECT_EQ(read_log(*store).next_seq(), 2U);
}

TEST(Log, FencesAnOldAttemptAtItsNextRecord) {
  const auto store = fresh();
  Log zombie = launch(*store);
  zombie.append(commit_of(10));
  Log newer = launch(*store);
  try {
    zombie.append(commit_of(20));
    FAIL() << "not fenced";
  } catch (const FencedError& error) {
    EXPECT_EQ(error.outcome(), Outcome::fenced);
    EXPECT_THAT(error.what(), HasSubstr("attempt 2"));
  }
  EXPECT_THROW(zombie.append(commit_of(20)), FencedError) << "fenced for good";
  newer.append(commit_of(11));
  EXPECT_EQ(read_log(*store).newest()->record.step, 11U);
}

TEST(Log, LetsANewLaunchResumeFromACommitThatWonTheRace) {
  const auto store = fresh();
  Log old = launch(*store);
  Log newer(*store);
  old.append(commit_of(10));  // after the newer one has read the log
  newer.claim({});
  EXPECT_EQ(newer.view().newest()->record.step, 10U);
  EXPECT_THROW(old.append(commit_of(20)), FencedError);
}

TEST(Log, CountsALostRecordAsAPossibleClaim) {
  const auto store = fresh();
  launch(*store);
  launch(*store);
  damage(*store, 2);  // the CLAIM of epoch 2
  const LogView view = read_log(*store);
  ASSERT_EQ(view.damages().size(), 1U);
  EXPECT_EQ(view.damages()[0].object, record_key(2));
  EXPECT_EQ(view.next_epoch(), 3U);
  EXPECT_EQ(launch(*store).epoch(), 3U);
}

TEST(Log, ReportsAMissingRecordBelowTheTip) {
  const auto store = fresh();
  Log log = launch(*store);
  log.append(commit_of(10));
  log.append(commit_of(20));
  store->remove(record_key(2));
  const LogView view = read_log(*store);
  EXPECT_EQ(view.newest()->record.step, 20U);
  ASSERT_EQ(view.damages().size(), 1U);
  EXPECT_THAT(view.damages()[0].what, HasSubstr("missing"));
  EXPECT_EQ(view.next_epoch(), 3U);
}

TEST(Log, GoesOnAfterALostJobRecord) {
  const auto store = fresh();
  const std::string job = launch(*store).view().job();
  damage(*store, 0);
  const Log log = launch(*store);
  EXPECT_EQ(log.view().job(), job);
  EXPECT_EQ(log.epoch(), 3U);
}

TEST(Log, FencesAWriterThatCollidesWithSomethingUnreadable) {
  const auto store = fresh();
  Log log = launch(*store);
  store->create_if_absent(record_key(2), "garbage", 1);
  EXPECT_THROW(log.append(commit_of(10)), FencedError);
}

TEST(Log, DoesNotCountARecordOfAnOldAttemptBehindANewClaim) {
  const auto store = fresh();
  Log old = launch(*store);
  old.append(commit_of(10));
  launch(*store);
  const Record forged{.seq = 4,
                      .job = old.view().job(),
                      .epoch = 1,
                      .nonce = std::string(32, '0'),
                      .host = "h",
                      .time = "t",
                      .body = commit_of(99)};
  store->create_if_absent(record_key(4), encode(forged), 1);
  const LogView view = read_log(*store);
  EXPECT_EQ(view.newest()->record.step, 10U);
  ASSERT_EQ(view.damages().size(), 1U);
  EXPECT_THAT(view.damages()[0].what, HasSubstr("attempt 1 wrote after attempt 2"));
}

TEST(Log, LearnsFromALostAnswerThatItsRecordIsThere) {
  const auto store = fresh();
  {
    FaultyStore faulty(*store, 4, Fault::lost_answer);  // list, read, JOB, CLAIM
    Log log(faulty);
    log.ensure_job(kModel);
    EXPECT_THROW(log.claim({}), StorageError);
    EXPECT_THROW(log.claim({}), FencedError) << "its own claim stands for somebody else's";
  }
  EXPECT_EQ(read_log(*store).epoch(), 1U);
}

TEST(Log, HasOneClaimOfEachEpochAfterARaceOverFiles) {
  const testing_support::ScratchFolder scratch;
  const std::string uri = "file:" + scratch.path().string();
  std::mutex mutex;
  std::map<std::uint64_t, int> winners;
  int fenced = 0;
  std::vector<std::thread> racers;
  for (int i = 0; i < 16; ++i) {
    racers.emplace_back([&] {
      const auto store = ObjectStore::open(uri);
      try {
        const std::uint64_t epoch = launch(*store).epoch();
        const std::lock_guard lock(mutex);
        ++winners[epoch];
      } catch (const FencedError&) {
        const std::lock_guard lock(mutex);
        ++fenced;
      }
    });
  }
  for (std::thread& racer : racers) racer.join();
  const auto store = ObjectStore::open(uri);
  const LogView view = read_log(*store);
  EXPECT_TRUE(view.damages().empty());
  EXPECT_EQ(view.epoch(), winners.size());
  EXPECT_EQ(static_cast<int>(winners.size()) + fenced, 16);
  for (const auto& [epoch, count] : winners) EXPECT_EQ(count, 1) << "epoch " << epoch;
}

/// Shows an old listing: without the newest records.
class StaleListing final : public ObjectStore {
 public:
  StaleListing(ObjectStore& inner, std::size_t hidden) : inner_(inner), hidden_(hidden) {}
  std::string uri() const override { return inner_.uri(); }
  std::optional<std::string> read(std::string_view key) override { return inner_.read(key); }
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    return inner_.read(key, offset, into, etag);
  }
  std::optional<ObjectInfo> stat(std::string_view key) override { return inner_.stat(key); }
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t epoch) override {
    return inner_.create_if_absent(key, bytes, epoch);
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t epoch) override {
    return inner_.create(key, size, epoch);
  }
  std::vector<ObjectInfo> list(std::string_view prefix) override {
    auto infos = inner_.list(prefix);
    infos.erase(infos.begin(),
                infos.begin() + static_cast<std::ptrdiff_t>(std::min(hidden_, infos.size())));
    return infos;
  }
  void remove(std::string_view key) override { inner_.remove(key); }
  std::vector<UnfinishedObject> unfinished(std::string_view prefix) override {
    return inner_.unfinished(prefix);
  }
  void abandon(const UnfinishedObject& object) override { inner_.abandon(object); }

 private:
  ObjectStore& inner_;
  std::size_t hidden_;
};

TEST(Log, FindsTheTipBehindAnOldListing) {
  const auto store = fresh();
  Log log = launch(*store);
  for (std::uint64_t step = 1; step <= 5; ++step) log.append(commit_of(step));
  for (std::size_t hidden = 0; hidden <= 7; ++hidden) {
    StaleListing stale(*store, hidden);
    EXPECT_EQ(read_log(stale).newest()->record.step, 5U) << hidden;
  }
}

}  // namespace
}  // namespace lockstep
