// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/keys.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

TEST(RecordKey, CountsDownSoThatTheNewestIsListedFirst) {
  EXPECT_EQ(record_key(0), "log/999999999999.json");
  EXPECT_EQ(record_key(41), "log/999999999958.json");
  EXPECT_LT(record_key(42), record_key(41));
}

TEST(RecordKey, IsReadBackAndOtherNamesAreNot) {
  EXPECT_EQ(record_seq(record_key(41)), 41U);
  for (const char* key : {"log/999999999999.jso", "log/99999999999.json", "log/x99999999999.json",
                          "log/999999999999.json.tmp", "m/999999999999.json", "log/"}) {
    EXPECT_EQ(record_seq(key), std::nullopt) << key;
  }
}

TEST(SaveKeys, HaveTheHashOfStepAndWriterInFront) {
  const SaveId id{.step = 10, .epoch = 3, .try_number = 1};
  const Sha256Digest hash = sha256("000000000010.000002");
  const std::string hh = to_hex(std::span(hash).first(1));
  EXPECT_EQ(shard_key(id, 2), "s/" + hh + "/000000000010.000003.001/w000002.h5");
  EXPECT_EQ(manifest_key(id), "m/000000000010.000003.001.json");
}

TEST(SaveKeys, TellTheirSave) {
  const SaveId id{.step = 123456789012345, .epoch = 1234567, .try_number = 1000};
  EXPECT_EQ(save_of(shard_key(id, 7)), id);
  EXPECT_EQ(save_of(manifest_key(id)), id);
  for (const char* key : {"m/x.json", "m/000000000010.000001.json", "s/aa/w.h5", "s/", "s", "m/",
                          "s/aaa/000000000010.000001.000/w000000.h5", "t/000001.x"}) {
    EXPECT_EQ(save_of(key), std::nullopt) << key;
  }
}

TEST(TemporaryKeys, TellTheirEpoch) {
  EXPECT_EQ(temporary_epoch("t/000012.abcdef"), 12U);
  EXPECT_EQ(temporary_epoch("t/abc"), std::nullopt);
  EXPECT_EQ(temporary_epoch("s/000012.abcdef"), std::nullopt);
}

TEST(EscapeName, EscapesWhatAPathOrAToolWouldMisread) {
  EXPECT_EQ(escape_name("transformer.h.0.ln_1.bias"), "transformer.h.0.ln_1.bias");
  EXPECT_EQ(escape_name("foo/bar"), "foo%2Fbar");
  EXPECT_EQ(escape_name("x//y"), "x%2F%2Fy");
  EXPECT_EQ(escape_name("."), "%2E");
  EXPECT_EQ(escape_name(".."), "%2E.");
  EXPECT_EQ(escape_name("~a~"), "%7Ea~");
  EXPECT_EQ(escape_name("50%"), "50%25");
  EXPECT_EQ(escape_name("a\n\x7F"), "a%0A%7F");
  EXPECT_EQ(escape_name("größe"), "größe");
  EXPECT_EQ(escape_name(""), "%");
}

TEST(EscapeName, HashesWhatIsTooLong) {
  EXPECT_EQ(escape_name(std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_EQ(escape_name(std::string(1001, 'x')), "~" + to_hex(sha256(std::string(1001, 'x'))));
  // Escaped it is longer than 1,000 bytes; the hash is of the name as it is.
  const std::string slashes(334, '/');
  EXPECT_EQ(escape_name(slashes), "~" + to_hex(sha256(slashes)));
}

TEST(EscapeName, KeepsDifferentNamesApart) {
  const std::vector<std::string> names = {
      "",  "%", "%25", "a/b", "a%2Fb", "a",    ".",    "..",
      "~", "/", "//",  "%2F", "a~1",   "a%~1", "%%~1", std::string(70'000, 'n')};
  std::set<std::string> escaped;
  for (const std::string& name : names) escaped.insert(escape_name(name));
  EXPECT_EQ(escaped.size(), names.size());
}

TEST(DatasetPath, NumbersTheRunsOfOneTensor) {
  EXPECT_EQ(dataset_path("param", "a/b", 0), "/param/a%2Fb");
  EXPECT_EQ(dataset_path("v", "a", 2), "/optim/v/a%~2");
  for (const char* name : {"a", "", "%~1", "x%~"}) {
    EXPECT_EQ(without_run(dataset_path("m", name, 3)), dataset_path("m", name, 0)) << name;
    EXPECT_EQ(without_run(dataset_path("m", name, 0)), dataset_path("m", name, 0)) << name;
  }
}

}  // namespace
}  // namespace lockstep
