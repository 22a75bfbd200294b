// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Bytes that a program of 20 lines in another language made from the format's description.
constexpr const char* kJob =
    R"({"fmt":"1.0","seq":0,"kind":"JOB","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":0,)"
    R"("nonce":"00112233445566778899aabbccddeeff","host":"node7","time":"2026-01-02T03:04:05.678Z",)"
    R"("fingerprint":"abababababababababababababababababababababababababababababababab",)"
    R"("crc32c":"e2206540"})"
    "\n";
constexpr const char* kClaim =
    R"({"fmt":"1.0","seq":1,"kind":"CLAIM","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":1,)"
    R"("nonce":"00112233445566778899aabbccddeeff","host":"node7","time":"2026-01-02T03:04:05.678Z",)"
    R"("world":2,"mesh":{"dp":2,"tp":1,"zero":0},"code":{"cpu":"größe","lockstep":"0.1.0"},)"
    R"("crc32c":"4ebaf3fd"})"
    "\n";
constexpr const char* kCommit =
    R"({"fmt":"1.0","seq":2,"kind":"COMMIT","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":1,)"
    R"("nonce":"00112233445566778899aabbccddeeff","host":"node7","time":"2026-01-02T03:04:05.678Z",)"
    R"("step":10,"tokens":18446744073709551615,"manifest":{"key":"m/000000000010.000001.000.json",)"
    R"("size":1234,"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"},)"
    R"("bytes":4096,"shards":2,"parent_seq":null,"crc32c":"26e762b3"})"
    "\n";
constexpr const char* kRetire =
    R"({"fmt":"1.0","seq":3,"kind":"RETIRE","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":1,)"
    R"("nonce":"00112233445566778899aabbccddeeff","host":"node7","time":"2026-01-02T03:04:05.678Z",)"
    R"("seqs":[2,5],"reason":"keep 3","crc32c":"7dfdee52"})"
    "\n";
constexpr const char* kNote =
    R"({"fmt":"1.0","seq":4,"kind":"NOTE","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":1,)"
    R"("nonce":"00112233445566778899aabbccddeeff","host":"node7","time":"2026-01-02T03:04:05.678Z",)"
    R"("what":"damaged","text":"w000001.h5 \"/param/a\"\n","commit":2,"crc32c":"4ee4af3e"})"
    "\n";

Record record_of(std::uint64_t seq, std::uint64_t epoch, RecordBody body) {
  return {.seq = seq,
          .job = "6f9619ff-8b86-4011-b42d-00c04fc964ff",
          .epoch = epoch,
          .nonce = "00112233445566778899aabbccddeeff",
          .host = "node7",
          .time = "2026-01-02T03:04:05.678Z",
          .body = std::move(body)};
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

CommitRecord commit_of_step_10() {
  return {.step = 10,
          .tokens = UINT64_MAX,
          .manifest = {.key = "m/000000000010.000001.000.json",
                       .size = 1234,
                       .sha256 = repeated("cd", 32)},
          .bytes = 4096,
          .shards = 2,
          .parent_seq = {}};
}

/// Puts the right checksum under a changed text.
std::string resealed(std::string text) {
  text.resize(text.rfind(",\"crc32c\":\""));
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08x", crc);
  return text + ",\"crc32c\":\"" + digits + "\"}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return resealed(text);
}

TEST(Record, IsWrittenToTheByteAsTheFormatSays) {
  EXPECT_EQ(encode(record_of(0, 0, JobRecord{.fingerprint = repeated("ab", 32)})), kJob);
  EXPECT_EQ(encode(record_of(1, 1,
                             ClaimRecord{.world = 2,
                                         .mesh = {.dp = 2, .tp = 1, .zero = 0},
                                         .code = {{"cpu", "größe"}, {"lockstep", "0.1.0"}}})),
            kClaim);
  EXPECT_EQ(encode(record_of(2, 1, commit_of_step_10())), kCommit);
  EXPECT_EQ(encode(record_of(3, 1, RetireRecord{.seqs = {2, 5}, .reason = "keep 3"})), kRetire);
  EXPECT_EQ(
      encode(record_of(
          4, 1, NoteRecord{.what = "damaged", .text = "w000001.h5 \"/param/a\"\n", .commit = 2})),
      kNote);
}

TEST(Record, IsReadBack) {
  std::uint64_t seq = 0;
  for (const char* text : {kJob, kClaim, kCommit, kRetire, kNote}) {
    EXPECT_EQ(encode(decode(text, seq)), text);
    ++seq;
  }
}

TEST(Record, IsRefusedWithAnyBitFlipped) {
  for (const std::uint64_t seq : {0U, 2U}) {
    const std::string text = seq == 0 ? kJob : kCommit;
    for (std::size_t byte = 0; byte < text.size(); ++byte) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        std::string flipped = text;
        flipped[byte] = static_cast<char>(static_cast<unsigned char>(flipped[byte]) ^ (1U << bit));
        EXPECT_THROW(decode(flipped, seq), DataError) << "byte " << byte << " bit " << bit;
      }
    }
  }
}

TEST(Record, IsRefusedWhenCutOrLengthened) {
  const std::string text = kClaim;
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(decode(text.substr(0, size), 1), DataError) << size;
  }
  EXPECT_THROW(decode(text + "\n", 1), DataError);
  EXPECT_THROW(decode(text + text, 1), DataError);
}

TEST(Record, IsRefusedUnderAnotherSeq) { EXPECT_THROW(decode(kClaim, 2), DataError); }

TEST(Record, IsStrictEvenWhereTheChecksumIsRight) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"step\":10", "\"step\":10,\"step\":10"},
      {"\"step\":10", "\"step\":10.0"},
      {"\"step\":10", "\"step\":1e1"},
      {"\"step\":10", "\"step\":-1"},
      {"\"step\":10", "\"step\":\"10\""},
      {"\"step\":10", "\"stop\":10"},
      {"\"tokens\":18446744073709551615", "\"tokens\":18446744073709551616"},
      {"\"size\":1234", "\"size\":1234,\"size\":1"},
      {"\"nonce\":\"00", "\"nonce\":\"0A"},
      {"m/000000000010.000001.000.json", "../x"},
      {"\"host\":\"node7\"", "\"host\":7"},
      {"\"fmt\":\"1.0\"", "\"fmt\":\"one\""}};
  for (const auto& [from, to] : changes) {
    EXPECT_THROW(decode(replaced(kCommit, from, to), 2), DataError) << to;
  }
}

TEST(Record, MayHoldKeysOfALaterMinorVersion) {
  const Record record =
      decode(replaced(kCommit, "\"fmt\":\"1.0\"", "\"fmt\":\"1.7\",\"x\":{\"y\":[1.5,null]}"), 2);
  EXPECT_EQ(std::get<CommitRecord>(record.body).step, 10U);
}

TEST(Record, OfAnUnknownKindIsSkipped) {
  const Record record = decode(replaced(kNote, "\"NOTE\"", "\"PIN\""), 4);
  EXPECT_TRUE(std::holds_alternative<UnknownRecord>(record.body));
}

TEST(Record, OfALaterMajorVersionIsRefusedWithAHint) {
  try {
    decode(replaced(kClaim, "\"fmt\":\"1.0\"", "\"fmt\":\"2.0\""), 1);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("format 2.0"));
  }
}

TEST(Record, MustBeShort) {
  EXPECT_THROW(
      encode(record_of(
          1, 1, ClaimRecord{.world = 1, .mesh = {}, .code = {{"cpu", std::string(5000, 'x')}}})),
      UsageError);
}

TEST(Record, MustBeUtf8) {
  EXPECT_THROW(encode(record_of(4, 1, NoteRecord{.what = "x", .text = "\xff", .commit = {}})),
               UsageError);
}

TEST(Record, SurvivesRandomMutationsWithoutACrash) {
  std::mt19937 random(20260101);
  const std::string texts[] = {kJob, kClaim, kCommit, kRetire, kNote};
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t seq = random() % 5;
    std::string text = texts[seq];
    for (unsigned change = 0; change <= random() % 4; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) text = "{";
    }
    // Half of them with a right checksum, so that the parser behind it is reached.
    if (random() % 2 == 0 && text.rfind(",\"crc32c\":\"") != std::string::npos) {
      text = resealed(text);
    }
    try {
      decode(text, seq);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(UtcNow, IsIso8601WithMilliseconds) {
  EXPECT_THAT(utc_now(), MatchesRegex("20[0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:"
                                      "[0-6][0-9]\\.[0-9][0-9][0-9]Z"));
}

TEST(ModelFingerprint, HashesNamesAndDimsInByteOrder) {
  const char* expected = "66ff92838238c2888a0ea89e23ad2d4558a15f82cf18c3c8914a55c8592a4063";
  EXPECT_EQ(model_fingerprint({{"b", {}}, {"a", {2, 3}}}), expected);
  EXPECT_NE(model_fingerprint({{"b", {}}, {"a", {3, 2}}}), expected);
}

TEST(Record, CarriesTheEvaluationOfACommitWithSeventeenDigits) {
  CommitRecord commit{.step = 10,
                      .tokens = 1,
                      .manifest = {.key = "m/000000000010.000001.000.json",
                                   .size = 1,
                                   .sha256 = std::string(64, 'c')},
                      .bytes = 1,
                      .shards = 1,
                      .parent_seq = {}};
  const auto round_trip = [&](std::optional<double> loss) {
    commit.eval_loss = loss;
    return std::get<CommitRecord>(decode(encode(record_of(2, 1, commit)), 2).body).eval_loss;
  };
  EXPECT_EQ(round_trip(0.1), 0.1);
  EXPECT_EQ(round_trip(5.0), 5.0);
  EXPECT_EQ(round_trip(1e-300), 1e-300);
  EXPECT_EQ(round_trip(std::nullopt), std::nullopt);
  EXPECT_EQ(round_trip(std::numeric_limits<double>::quiet_NaN()), std::nullopt);
  commit.eval_loss = 0.1;
  EXPECT_THAT(encode(record_of(2, 1, commit)), HasSubstr("\"eval_loss\":0.10000000000000001,"));
}

}  // namespace
}  // namespace lockstep
