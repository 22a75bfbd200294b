// SPDX-License-Identifier: Apache-2.0
// What every store promises; each test runs on each kind, with LOCKSTEP_TEST_S3=s3://BUCKET/PREFIX
// (and the AWS_* variables) also on that one.
#include "lockstep/runtime/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class EveryStore : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<ObjectStore> open() const {
    if (std::string(GetParam()) == "mem") return ObjectStore::open("mem:" + name_);
    if (std::string(GetParam()) == "s3") {
      return ObjectStore::open(std::string(std::getenv("LOCKSTEP_TEST_S3")) + "/" + name_);
    }
    return ObjectStore::open("file:" + (scratch_.path() / "made" / "on demand").string());
  }

 private:
  testing_support::ScratchFolder scratch_;
  std::string name_ = random_hex(8);
};

std::vector<const char*> kinds() {
  if (std::getenv("LOCKSTEP_TEST_S3") == nullptr) return {"file", "mem"};
  return {"file", "mem", "s3"};
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryStore, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(EveryStore, IsEmptyBeforeTheFirstWrite) {
  const auto store = open();
  EXPECT_TRUE(store->list("").empty());
  EXPECT_EQ(store->read("a/b"), std::nullopt);
  EXPECT_EQ(store->size("a/b"), std::nullopt);
  store->remove("a/b");
}

TEST_P(EveryStore, ReadsBackWhatWasCreated) {
  const auto store = open();
  const std::string text("with\0zero", 9);
  ASSERT_EQ(store->create_if_absent("a/b.json", text, 1), Creation::created);
  const auto again = open();
  EXPECT_EQ(again->read("a/b.json"), text);
  EXPECT_EQ(again->size("a/b.json"), 9U);
}

TEST_P(EveryStore, CreatesAKeyOnce) {
  const auto store = open();
  ASSERT_EQ(store->create_if_absent("k", "first", 1), Creation::created);
  EXPECT_EQ(store->create_if_absent("k", "second", 1), Creation::exists);
  EXPECT_EQ(store->create_if_absent("k", "first", 1), Creation::exists);
  EXPECT_EQ(store->read("k"), "first");
}

TEST_P(EveryStore, TellsExactlyOneOfManyRacersThatItCreatedTheKey) {
  const auto store = open();
  for (int round = 0; round < 20; ++round) {
    const std::string key = "race/" + std::to_string(round);
    std::atomic<int> winners{0};
    std::string winner;
    std::vector<std::thread> racers;
    for (int racer = 0; racer < 8; ++racer) {
      racers.emplace_back([&, racer] {
        const std::string body = "racer " + std::to_string(racer);
        if (open()->create_if_absent(key, body, 1) != Creation::created) return;
        ++winners;
        winner = body;
      });
    }
    for (std::thread& racer : racers) racer.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(store->read(key), winner);
  }
}

TEST_P(EveryStore, ReadsARangeUpToTheEnd) {
  const auto store = open();
  store->create_if_absent("k", "0123456789", 1);
  std::string into(4, '?');
  EXPECT_EQ(store->read("k", 3, std::as_writable_bytes(std::span(into))), 4U);
  EXPECT_EQ(into, "3456");
  EXPECT_EQ(store->read("k", 8, std::as_writable_bytes(std::span(into))), 2U);
  EXPECT_EQ(into, "8956");
  EXPECT_EQ(store->read("k", 50, std::as_writable_bytes(std::span(into))), 0U);
  EXPECT_EQ(store->read("absent", 0, std::as_writable_bytes(std::span(into))), std::nullopt);
}

TEST_P(EveryStore, WritesInPiecesWithTheFirstOneLastAndZerosBetween) {
  const auto store = open();
  const auto writer = store->create("s/big", 12, 1);
  writer->write(8, bytes_of("tail"));
  writer->write(0, bytes_of("head"));
  EXPECT_EQ(store->read("s/big"), std::nullopt) << "visible before commit";
  ASSERT_EQ(writer->commit(), Creation::created);
  EXPECT_EQ(store->read("s/big"), std::string("head\0\0\0\0tail", 12));
}

TEST_P(EveryStore, WritesAnObjectOfSeveralPartsWithItsHeadLast) {
  const auto store = open();
  constexpr std::size_t head = 100'000;
  std::string text((std::size_t{70} << 20U) + 5, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>((i * 2654435761U) >> 13U);
  const auto writer = store->create("s/big", text.size(), 1);
  for (std::size_t at = head; at < text.size(); at += 500'000) {
    writer->write(at, bytes_of(text).subspan(at, std::min<std::size_t>(500'000, text.size() - at)));
  }
  writer->write(0, bytes_of(text).first(head));
  EXPECT_EQ(store->size("s/big"), std::nullopt) << "visible before commit";
  ASSERT_EQ(writer->commit(), Creation::created);
  EXPECT_TRUE(store->read("s/big") == text);
  const auto late = store->create("s/big", text.size(), 1);
  EXPECT_EQ(late->commit(), Creation::exists);
  EXPECT_TRUE(store->read("s/big") == text);
}

TEST_P(EveryStore, RefusesAPieceBeyondTheSize) {
  const auto store = open();
  const auto writer = store->create("k", 4, 1);
  EXPECT_THROW(writer->write(2, bytes_of("abc")), UsageError);
  EXPECT_THROW(writer->write(UINT64_MAX, bytes_of("a")), UsageError);
}

TEST_P(EveryStore, LeavesNothingOfAnObjectThatIsNotCommitted) {
  const auto store = open();
  store->create("s/big", 4, 1)->write(0, bytes_of("gone"));
  EXPECT_TRUE(store->list("").empty());
}

TEST_P(EveryStore, FindsAndAbandonsWhatADeadWriterHasBegun) {
  const auto store = open();
  const auto writer = store->create("s/big", std::size_t{40} << 20U, 1);
  for (const UnfinishedObject& object : store->unfinished("s/")) {
    EXPECT_EQ(object.key, "s/big");
    store->abandon(object);
    store->abandon(object);
  }
  EXPECT_TRUE(store->unfinished("").empty());
}

TEST_P(EveryStore, MakesAnEmptyObject) {
  const auto store = open();
  ASSERT_EQ(store->create_if_absent("k", "", 1), Creation::created);
  EXPECT_EQ(store->read("k"), "");
}

TEST_P(EveryStore, ListsByPrefixInByteOrder) {
  const auto store = open();
  for (const char* key : {"log/b", "log/a", "log/a.x/y", "logs", "m/1"}) {
    store->create_if_absent(key, "12", 1);
  }
  std::vector<std::string> keys;
  for (const ObjectInfo& info : store->list("log/")) {
    keys.push_back(info.key);
    EXPECT_EQ(info.size, 2U);
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"log/a", "log/a.x/y", "log/b"}));
  EXPECT_EQ(store->list("log").size(), 4U);
}

TEST_P(EveryStore, RemovesAKeySoThatItCanBeCreatedAgain) {
  const auto store = open();
  store->create_if_absent("s/aa/x/w.h5", "1", 1);
  store->remove("s/aa/x/w.h5");
  EXPECT_TRUE(store->list("s/").empty());
  EXPECT_EQ(store->create_if_absent("s/aa/x/w.h5", "2", 1), Creation::created);
}

TEST_P(EveryStore, RefusesKeysThatLeaveTheRoot) {
  const auto store = open();
  for (const char* key : {"", "/a", "a//b", "../a", "a/../b", "a/.", "a/"}) {
    EXPECT_THROW(store->read(key), UsageError) << key;
    EXPECT_THROW(store->create_if_absent(key, "x", 1), UsageError) << key;
    EXPECT_THROW(store->remove(key), UsageError) << key;
  }
}

TEST_P(EveryStore, PassesTheProbeAndKeepsNothingOfIt) {
  const auto store = open();
  probe(*store, 1);
  EXPECT_TRUE(store->list("").empty());
}

TEST_P(EveryStore, DoesAllThatTheProbeReportAsks) {
  const auto store = open();
  for (const ProbeFinding& finding : probe_report(*store)) {
    EXPECT_TRUE(finding.holds) << finding.what << ": " << finding.error;
  }
  EXPECT_TRUE(store->list("").empty());
}

/// Says "created" to everybody.
class CarelessStore final : public ObjectStore {
 public:
  std::string uri() const override { return "careless:"; }
  std::optional<std::string> read(std::string_view key) override { return inner_->read(key); }
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    return inner_->read(key, offset, into, etag);
  }
  std::optional<ObjectInfo> stat(std::string_view key) override { return inner_->stat(key); }
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t epoch) override {
    inner_->remove(key);
    return inner_->create_if_absent(key, bytes, epoch);
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t epoch) override {
    return inner_->create(key, size, epoch);
  }
  std::vector<ObjectInfo> list(std::string_view prefix) override { return inner_->list(prefix); }
  void remove(std::string_view key) override { inner_->remove(key); }
  std::vector<UnfinishedObject> unfinished(std::string_view /*prefix*/) override { return {}; }
  void abandon(const UnfinishedObject& /*object*/) override {}

 private:
  std::unique_ptr<ObjectStore> inner_ = ObjectStore::open("mem:" + random_hex(8));
};

TEST(Probe, ReportsThatAStoreOverwrites) {
  CarelessStore store;
  const auto findings = probe_report(store);
  ASSERT_GT(findings.size(), 2U);
  EXPECT_TRUE(findings[0].holds);
  EXPECT_FALSE(findings[1].holds) << findings[1].what;
}

TEST(Probe, RefusesAStoreThatOverwrites) {
  CarelessStore store;
  try {
    probe(store, 1);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("created twice"));
    EXPECT_THAT(error.hint(), HasSubstr("overwrite each other"));
  }
}

TEST(OpenStore, RefusesAnUnknownSchemeAndAnEmptyName) {
  for (const char* uri :
       {"ftp://host/x", "/some/path", "file:", "mem:", "s3:", "s3://", "s3://b//p", "oss:", ""}) {
    EXPECT_THROW(ObjectStore::open(uri), ConfigError) << uri;
  }
}

}  // namespace
}  // namespace lockstep
