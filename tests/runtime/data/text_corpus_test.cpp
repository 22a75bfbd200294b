// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/corpus.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing_support::ScratchFolder;

std::string text_of(const TokenStream& stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.size()));
  stream.read(0, tokens);
  std::string text;
  for (const std::int32_t token : tokens) text += static_cast<char>(token);
  return text;
}

bool held_back(const std::string& name) {
  const Sha256Digest digest = sha256(name);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | digest[i];
  return first >= 0xf333333333333334U;
}

TEST(TextCorpus, JoinsFilesInByteOrderOfTheWholeRelativePath) {
  const ScratchFolder folder;
  // '-' < '/' < '0': "a-b" comes before "a/z", "a0" after it, as whole paths and not by folder.
  folder.write("a/z", "2");
  folder.write("a-b", "1");
  folder.write("a0", "3");
  folder.write("\xff", "4");
  folder.write("B", "0");
  const Corpus corpus =
      read_corpus("text:" + folder.path().string(), "text:" + (folder.path() / "B").string());
  EXPECT_EQ(text_of(corpus.train), "01234");
  EXPECT_EQ(text_of(corpus.held_back), "0");
  EXPECT_EQ(corpus.files, 5);
}

TEST(TextCorpus, LeavesOutHiddenNamesPipesAndLinkedFoldersButNotLinkedFiles) {
  const ScratchFolder folder;
  folder.write("b", "b");
  folder.write(".hidden", "x");
  folder.write(".git/c", "x");
  folder.write("folder/d", "d");
  std::filesystem::create_symlink("b", folder.path() / "c");
  std::filesystem::create_directory_symlink("folder", folder.path() / "e");
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  const Corpus corpus =
      read_corpus("text:" + folder.path().string(), "text:" + (folder.path() / "b").string());
  EXPECT_EQ(text_of(corpus.train), "bbd");
}

TEST(TextCorpus, HoldsBackFilesByTheHashOfTheirPath) {
  const ScratchFolder folder;
  std::string train;
  std::string back;
  for (int i = 100; i < 200; ++i) {
    const std::string name = "f" + std::to_string(i);
    folder.write(name, name);
    (held_back(name) ? back : train) += name;
  }
  const Corpus corpus = read_corpus("text:" + folder.path().string());
  ASSERT_FALSE(back.empty());
  EXPECT_EQ(text_of(corpus.train), train);
  EXPECT_EQ(text_of(corpus.held_back), back);
}

TEST(TextCorpus, HoldsBackTheLastTwentiethOfASingleFile) {
  const ScratchFolder folder;
  const auto file = folder.write("one", std::string(41, 'a') + "bc");
  const Corpus corpus = read_corpus("text:" + file.string());
  EXPECT_EQ(text_of(corpus.train), std::string(41, 'a'));
  EXPECT_EQ(text_of(corpus.held_back), "bc");
}

TEST(TextCorpus, ChangesItsFingerprintWithNamesAndBytes) {
  const ScratchFolder folder;
  folder.write("a", "text");
  const std::string source = "text:" + folder.path().string();
  const std::string first = read_corpus(source).fingerprint;
  EXPECT_EQ(first.size(), 64U);
  EXPECT_EQ(read_corpus(source).fingerprint, first);
  folder.write("a", "texT");
  const std::string second = read_corpus(source).fingerprint;
  EXPECT_NE(second, first);
  std::filesystem::rename(folder.path() / "a", folder.path() / "b");
  EXPECT_NE(read_corpus(source).fingerprint, second);
}

TEST(TextCorpus, RefusesWhatItCannotRead) {
  const ScratchFolder folder;
  const std::string root = folder.path().string();
  EXPECT_THROW(read_corpus("text:" + root), ConfigError) << "empty folder";
  EXPECT_THROW(read_corpus("text:" + root + "/none"), ConfigError) << "missing";
  EXPECT_THROW(read_corpus("text:"), ConfigError) << "no path";
  EXPECT_THROW(read_corpus("s3://bucket/key"), ConfigError) << "scheme";
  folder.write("empty", "");
  EXPECT_THROW(read_corpus("text:" + root + "/empty"), ConfigError) << "empty file";
  std::filesystem::create_symlink("nowhere", folder.path() / "dangling");
  try {
    read_corpus("text:" + root);
    FAIL() << "a dangling link was accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("dangling"));
  }
}

}  // namespace
}  // namespace lockstep
