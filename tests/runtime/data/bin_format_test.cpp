// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/bin_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lockstep/core/error.h"
#include "lockstep/runtime/corpus.h"
#include "tests/runtime/data/bin_shards.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using namespace testing_support;

BinLayout parse(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file));
  return parse_bin_header(bytes.first(std::min(bytes.size(), kBinHeaderBytes)), file.size(),
                          "x.bin");
}

template <typename Expected>
std::string message_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Expected& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BinFormat, KnowsTheThreeKindsOfShards) {
  const BinLayout llmc = parse(llmc_shard({1, 2, 3}));
  EXPECT_EQ(llmc.offset, 1024U);
  EXPECT_EQ(llmc.width, 2U);
  EXPECT_EQ(llmc.tokens, 3);
  const BinLayout llama = parse(llama3_shard({1, 2, 100000}));
  EXPECT_EQ(llama.offset, 1024U);
  EXPECT_EQ(llama.width, 4U);
  EXPECT_EQ(llama.tokens, 3);
  const BinLayout nano = parse(nanogpt_shard({1, 2, 3, 4}));
  EXPECT_EQ(nano.offset, 0U);
  EXPECT_EQ(nano.width, 2U);
  EXPECT_EQ(nano.tokens, 4);
  EXPECT_EQ(parse(nanogpt_shard({7})).tokens, 1) << "shorter than a magic number";
}

TEST(BinFormat, SaysWhatItFoundInstead) {
  EXPECT_THAT(message_of<ConfigError>(""), HasSubstr("x.bin is empty"));
  EXPECT_THAT(message_of<ConfigError>(llmc_shard({})), HasSubstr("empty"));
  EXPECT_THAT(message_of<DataError>("abc"), HasSubstr("61 62 63"));
  EXPECT_THAT(message_of<ConfigError>(llmc_header(20240520, 2, 1) + "ab"), HasSubstr("version 2"));
  EXPECT_THAT(message_of<ConfigError>(llmc_header(20240326, 3, 1)), HasSubstr("model weights"));
  EXPECT_THAT(message_of<ConfigError>("\x93NUMPY\x01" + std::string(9, 'x')), HasSubstr(".npy"));
}

TEST(BinFormat, FindsAHeaderThatDisagreesWithTheSize) {
  const std::string whole = llmc_shard({1, 2, 3});
  EXPECT_THAT(message_of<DataError>(whole.substr(0, 1000)), HasSubstr("truncated"));
  EXPECT_THAT(message_of<DataError>(whole.substr(0, 1024)), HasSubstr("counts 3 tokens"));
  EXPECT_THAT(message_of<DataError>(whole.substr(0, 1028)), HasSubstr("are 4 bytes, not 6"));
  EXPECT_THAT(message_of<DataError>(whole + "z"), HasSubstr("are 7 bytes, not 6"));
  EXPECT_THAT(message_of<DataError>(llmc_header(20240520, 1, -3) + "abcdef"), HasSubstr("-3"));
  EXPECT_THAT(message_of<DataError>(llmc_header(20240520, 1, 0) + "ab"), HasSubstr("counts 0"));
}

// Whatever the bytes: tokens that can all be read, or an error of the two kinds that have a code.
TEST(BinFormat, GivesTokensOrAClearErrorForAnyBytes) {
  const ScratchFolder folder;
  std::mt19937_64 random(20240520);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  std::vector<std::int32_t> tokens(200);
  for (auto& token : tokens) token = static_cast<std::int32_t>(below(300));
  const std::vector<std::string> seeds = {llmc_shard(tokens), llama3_shard(tokens),
                                          nanogpt_shard(tokens), std::string(1024, '\0')};
  const std::vector<std::int32_t> odd = {0,        1,        -1,       2,         7,        200,
                                         20240520, 20240801, 20240326, INT32_MAX, INT32_MIN};
  int read = 0;
  int config = 0;
  int data = 0;
  for (int round = 0; round < 400; ++round) {
    std::string file = seeds[below(seeds.size())];
    for (std::size_t i = below(4); i > 0 && file.size() >= 12; --i) {  // header fields
      const std::int32_t value = odd[below(odd.size())];
      std::memcpy(file.data() + 4 * below(3), &value, sizeof value);
    }
    for (std::size_t i = below(3); i > 0 && !file.empty(); --i) {  // any bits
      const std::size_t at = below(file.size());
      file[at] = static_cast<char>(static_cast<unsigned char>(file[at]) ^ (1U << below(8)));
    }
    if (below(3) == 0) file.resize(below(2 * file.size() + 1));
    const auto path = folder.write("f.bin", file);
    try {
      const Corpus corpus = read_corpus("bin:" + path.string(), {}, 300);
      for (const TokenStream* stream : {&corpus.train, &corpus.held_back}) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(stream->size()));
        stream->read(0, all);
        for (const std::int32_t token : all) ASSERT_TRUE(token >= 0 && token < 300);
      }
      ++read;
    } catch (const ConfigError& error) {
      EXPECT_FALSE(error.hint().empty());
      ++config;
    } catch (const DataError& error) {
      EXPECT_FALSE(error.hint().empty());
      ++data;
    }
  }
  EXPECT_GT(read, 30);
  EXPECT_GT(config, 30);
  EXPECT_GT(data, 30);
}

}  // namespace
}  // namespace lockstep
