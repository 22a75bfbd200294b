// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/runtime/corpus.h"
#include "lockstep/runtime/samples.h"
#include "runtime/data/shard_files.h"
#include "tests/runtime/data/bin_shards.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using namespace testing_support;

std::vector<std::int32_t> row(std::int32_t first, std::int32_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<std::int32_t> all_of(const TokenStream& stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

std::string message_of(const std::string& source, std::int64_t vocabulary = 1000) {
  try {
    read_corpus(source, {}, vocabulary);
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.outcome())) + " " + error.what();
  }
  return "accepted";
}

TEST(BinCorpus, JoinsShardsInByteOrderOfTheirPathsWhateverTheirKind) {
  const ScratchFolder folder;
  folder.write("a/2.bin", llmc_shard(row(20, 10)));
  folder.write("a-1.bin", nanogpt_shard(row(10, 10)));
  folder.write("b.bin", nanogpt_shard(row(30, 30)));
  folder.write("meta.pkl", "x");
  folder.write(".hidden.bin", "x");
  const std::string root = folder.path().string();
  const Corpus corpus = read_corpus("bin:" + root, {}, 1000);
  EXPECT_EQ(corpus.files, 3);
  // The last ⌊50/20⌋ tokens of all, not of each shard.
  EXPECT_EQ(all_of(corpus.train), row(10, 48));
  EXPECT_EQ(all_of(corpus.held_back), row(58, 2));

  const Corpus some = read_corpus("bin:" + root + "/[ab]*.bin", "bin:" + root + "/a/2.bin", 1000);
  EXPECT_EQ(some.files, 2) << "a pattern does not cross folders";
  std::vector<std::int32_t> expected = row(10, 10);
  const auto rest = row(30, 30);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(all_of(some.train), expected) << "with data.eval all trains";
  EXPECT_EQ(all_of(some.held_back), row(20, 10));
}

TEST(BinCorpus, ReadsWideTokens) {
  const ScratchFolder folder;
  const auto file = folder.write("l.bin", llama3_shard(row(128000, 19)));
  EXPECT_EQ(all_of(read_corpus("bin:" + file.string(), {}, 128256).train), row(128000, 19));
  folder.write("g.bin", llmc_shard(row(0, 19)));
  EXPECT_THAT(message_of("bin:" + folder.path().string(), 128256),
              HasSubstr("tokens of 2 bytes and "));
}

TEST(BinCorpus, GivesTheSamplesOfTheSameText) {
  const ScratchFolder folder;
  std::string text;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 1000; ++i) {
    tokens.push_back((i * 37 + i / 7) % 256);
    text += static_cast<char>(tokens.back());
  }
  const auto part = [&](int begin, int end) {
    return std::vector<std::int32_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  const auto plain = folder.write("plain", text);
  folder.write("bin/0.bin", llmc_shard(part(0, 333)));
  folder.write("bin/1.bin", nanogpt_shard(part(333, 334)));
  folder.write("bin/2.bin", llmc_shard(part(334, 1000)));
  const Corpus a = read_corpus("text:" + plain.string());
  const Corpus b = read_corpus("bin:" + (folder.path() / "bin").string());
  EXPECT_EQ(all_of(a.held_back), all_of(b.held_back));
  EXPECT_EQ(a.held_back.size(), 50);
  SampleSequence left(a.train, 16, 8, 2, 5);
  SampleSequence right(b.train, 16, 8, 2, 5);
  ASSERT_EQ(left.samples(), right.samples());
  const Batch one = make_batch(2, 16);
  const Batch two = make_batch(2, 16);
  for (int step = 0; step < 20; ++step) {
    for (int leaf = 0; leaf < 4; ++leaf) {
      left.read_leaf(leaf, one);
      right.read_leaf(leaf, two);
      ASSERT_EQ(std::memcmp(one.tokens.data(), two.tokens.data(), one.tokens.bytes()), 0);
      ASSERT_EQ(std::memcmp(one.targets.data(), two.targets.data(), one.targets.bytes()), 0);
    }
    left.advance();
    right.advance();
  }
}

TEST(BinCorpus, NamesFilePositionAndTokenOutsideTheVocabulary) {
  const ScratchFolder folder;
  folder.write("0.bin", llmc_shard(row(0, 100)));
  std::vector<std::int32_t> bad = row(0, 100);
  bad[42] = 50256;
  folder.write("1.bin", llmc_shard(bad));
  const std::string message = message_of("bin:" + folder.path().string(), 50256);
  EXPECT_THAT(message, HasSubstr("65 "));
  EXPECT_THAT(message, HasSubstr("/1.bin: token 50256 at position 42"));
  EXPECT_THAT(message, HasSubstr("byte 1108"));
  EXPECT_EQ(message_of("bin:" + folder.path().string(), 50257), "accepted");
}

TEST(BinCorpus, ChangesItsFingerprintWithEveryByteAndName) {
  const ScratchFolder folder;
  const auto file = folder.write("a.bin", llmc_shard(row(0, 100)));
  const std::string source = "bin:" + folder.path().string();
  const std::string first = read_corpus(source, {}, 1000).fingerprint;
  EXPECT_EQ(first.size(), 64U);
  EXPECT_EQ(read_corpus(source, {}, 1000).fingerprint, first);
  EXPECT_EQ(read_corpus("bin:" + file.string(), {}, 1000).fingerprint, first)
      << "a file is a folder of one";
  std::vector<std::int32_t> other = row(0, 100);
  other[99] = 0;
  folder.write("a.bin", llmc_shard(other));
  const std::string second = read_corpus(source, {}, 1000).fingerprint;
  EXPECT_NE(second, first);
  std::filesystem::rename(folder.path() / "a.bin", folder.path() / "b.bin");
  EXPECT_NE(read_corpus(source, {}, 1000).fingerprint, second);
}

TEST(BinCorpus, RefusesWhatIsNotThere) {
  const ScratchFolder folder;
  const std::string root = folder.path().string();
  EXPECT_THAT(message_of("bin:"), HasSubstr("78 data.source"));
  EXPECT_THAT(message_of("bin:" + root), HasSubstr("78 data.source: " + root + " holds no token"));
  EXPECT_THAT(message_of("bin:" + root + "/x.bin"), HasSubstr("does not exist"));
  EXPECT_THAT(message_of("bin:" + root + "/*.bin"), HasSubstr("matches no file"));
  folder.write("empty.bin", "");
  EXPECT_THAT(message_of("bin:" + root), HasSubstr("78 "));
}

TEST(BinCorpus, SaysThatAShardChangedInsteadOfReadingAnother) {
  const ScratchFolder folder;
  const auto file = folder.write("a.bin", nanogpt_shard(row(0, 100)));
  const Corpus corpus = read_corpus("bin:" + file.string(), {}, 1000);
  std::filesystem::resize_file(file, 20);  // under a run
  std::vector<std::int32_t> tokens(50);
  EXPECT_THROW(corpus.train.read(40, tokens), ConfigError);
}

TEST(ShardFiles, ReadMoreFilesThanTheyKeepOpen) {
  const ScratchFolder folder;
  ShardFiles files(2);
  std::vector<std::filesystem::path> paths;
  std::vector<FileIdentity> identities;
  for (int i = 0; i < 5; ++i) {
    paths.push_back(folder.write(std::to_string(i), std::string(3, static_cast<char>('a' + i))));
    identities.push_back(files.identify(paths.back()));
  }
  for (const std::size_t i : {0U, 4U, 2U, 0U, 1U, 3U}) {
    std::array<std::byte, 2> bytes = {};
    files.read(paths[i], identities[i], 1, bytes);
    EXPECT_EQ(std::to_integer<int>(bytes[1]), 'a' + static_cast<int>(i));
  }
  std::filesystem::remove(paths[4]);
  folder.write("4", "other");
  std::array<std::byte, 2> bytes = {};
  EXPECT_THROW(files.read(paths[4], identities[4], 0, bytes), ConfigError);
}

TEST(TokenStream, SlicesAndReadsAcrossItsParts) {
  TokenStream stream({1, 2, 3});
  const TokenStream other({4, 5, 6, 7});
  TokenStream joined = stream.slice(1, 2);
  const auto tail = other.slice(2, 2);
  EXPECT_EQ(all_of(joined), (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(all_of(tail), (std::vector<std::int32_t>{6, 7}));
  EXPECT_TRUE(stream.slice(3, 0).empty());
  std::vector<std::int32_t> two(2);
  EXPECT_THROW(stream.read(2, two), UsageError);
  EXPECT_THROW(stream.slice(-1, 2), UsageError);
}

}  // namespace
}  // namespace lockstep
