// SPDX-License-Identifier: Apache-2.0
// What is special about files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "lockstep/core/error.h"
#include "lockstep/runtime/object_store.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

TEST(FileStore, WritesUnderATemporaryNameWithTheEpoch) {
  const testing_support::ScratchFolder scratch;
  const auto store = ObjectStore::open("file:" + scratch.path().string());
  const auto writer = store->create("s/x", 4, 7);
  const auto objects = store->list("");
  ASSERT_EQ(objects.size(), 1U);
  EXPECT_THAT(objects[0].key, StartsWith("t/000007."));
  ASSERT_EQ(writer->commit(), Creation::created);
}

TEST(FileStore, KeepsOneNameOfAnObject) {
  const testing_support::ScratchFolder scratch;
  const auto store = ObjectStore::open("file:" + scratch.path().string());
  store->create_if_absent("log/1", "x", 1);
  EXPECT_EQ(fs::hard_link_count(scratch.path() / "log" / "1"), 1U);
}

TEST(FileStore, TakesATrailingSlashAndARelativePath) {
  const testing_support::ScratchFolder scratch;
  const auto store = ObjectStore::open("file:" + scratch.path().string() + "/sub/./x/");
  store->create_if_absent("k", "x", 1);
  EXPECT_TRUE(fs::exists(scratch.path() / "sub" / "x" / "k"));
}

TEST(FileStore, RemovesTheFolderOfASaveWithItsLastObject) {
  const testing_support::ScratchFolder scratch;
  const auto store = ObjectStore::open("file:" + scratch.path().string());
  store->create_if_absent("s/aa/save/w0.h5", "x", 1);
  store->create_if_absent("s/aa/save/w1.h5", "x", 1);
  store->remove("s/aa/save/w0.h5");
  EXPECT_TRUE(fs::exists(scratch.path() / "s" / "aa" / "save"));
  store->remove("s/aa/save/w1.h5");
  EXPECT_FALSE(fs::exists(scratch.path() / "s" / "aa" / "save"));
  EXPECT_TRUE(fs::exists(scratch.path() / "s" / "aa"));
}

TEST(FileStore, SaysThatAFileStandsInTheWay) {
  const testing_support::ScratchFolder scratch;
  scratch.write("taken", "");
  const auto store = ObjectStore::open("file:" + (scratch.path() / "taken").string());
  try {
    store->create_if_absent("k", "x", 1);
    FAIL() << "accepted";
  } catch (const StorageError& error) {
    EXPECT_EQ(error.outcome(), Outcome::config);
    EXPECT_THAT(error.what(), HasSubstr("taken"));
    EXPECT_FALSE(error.hint().empty());
  }
}

/// Runs `body` in a child process and returns its exit status.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST(FileStore, LeavesNothingWhereAWriteFails) {
  const testing_support::ScratchFolder scratch;
  const std::string uri = "file:" + scratch.path().string();
  const int status = in_child([&] {
    // A limit on file sizes: a write that reaches it is cut short, the next one fails.
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      ObjectStore::open(uri)->create_if_absent("k", std::string(3 << 20, 'x'), 1);
    } catch (const StorageError& error) {
      return error.outcome() == Outcome::failed_elsewhere && !error.hint().empty() ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ObjectStore::open(uri)->list("").empty());
}

TEST(FileStore, LeavesATemporaryNameToTheSweepWhenTheProcessDies) {
  const testing_support::ScratchFolder scratch;
  const std::string uri = "file:" + scratch.path().string();
  const int status = in_child([&] {
    const auto store = ObjectStore::open(uri);
    const auto writer = store->create("s/x", 100, 3);
    const std::string half(50, 'x');
    writer->write(0, std::as_bytes(std::span(half)));
    _exit(9);
    return 0;
  });
  EXPECT_EQ(status, 9);
  const auto objects = ObjectStore::open(uri)->list("");
  ASSERT_EQ(objects.size(), 1U);
  EXPECT_THAT(objects[0].key, StartsWith("t/000003."));
}

}  // namespace
}  // namespace lockstep
