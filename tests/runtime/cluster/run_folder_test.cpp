// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing_support::ScratchFolder;

json read(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

TEST(RunFolder, SaysThatAnAttemptRunsUntilItsResultIsThere) {
  const ScratchFolder scratch;
  const RunFolder folder(scratch.path() / "runs/a");
  folder.write_result({.reason = "running", .attempt = 3});
  json result = read(folder.path() / "result.json");
  EXPECT_TRUE(result["code"].is_null());
  EXPECT_EQ(result["attempt"], 3);
  folder.write_result({.code = Outcome::saved,
                       .reason = "SIGTERM",
                       .attempt = 3,
                       .steps = 7,
                       .tokens = 900,
                       .loss = 1.25,
                       .weights_sha256 = "ab"});
  result = read(folder.path() / "result.json");
  EXPECT_EQ(result["code"], 75);
  EXPECT_EQ(result["steps"], 7);
  EXPECT_EQ(result["loss"], 1.25);
  EXPECT_FALSE(result.contains("bits_broken_at_step"));
}

TEST(RunFolder, WritesANonFiniteLossAsNull) {
  const ScratchFolder scratch;
  const RunFolder folder(scratch.path());
  folder.write_result({.code = Outcome::non_finite, .loss = std::nan("")});
  EXPECT_TRUE(read(folder.path() / "result.json")["loss"].is_null());
}

TEST(RunFolder, NamesTheHolderOfItsLock) {
  const ScratchFolder scratch;
  RunFolder first(scratch.path());
  first.lock();
  RunFolder second(scratch.path());
  const auto began = std::chrono::steady_clock::now();
  try {
    second.lock();
    FAIL() << "a second process got the folder";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("process " + std::to_string(getpid())));
    EXPECT_THAT(error.what(), testing::HasSubstr("host "));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::seconds(9));
}

TEST(RunFolder, GivesItsLockToTheNextWhenItLeaves) {
  const ScratchFolder scratch;
  auto first = std::make_unique<RunFolder>(scratch.path());
  first->lock();
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  RunFolder second(scratch.path());
  EXPECT_NO_THROW(second.lock());
  leaver.join();
}

TEST(RunFolder, WritesOneCauseARank) {
  const ScratchFolder scratch;
  const RunFolder folder(scratch.path());
  EXPECT_TRUE(folder.write_cause(2, 1,
                                 {.code = Outcome::failed_elsewhere,
                                  .kind = "lost rank",
                                  .origin_rank = 0,
                                  .what = "rank 0 \xff is gone",
                                  .hint = "h"}));
  const json cause = read(folder.path() / "cause/2.1.json");
  EXPECT_EQ(cause["code"], 79);
  EXPECT_EQ(cause["kind"], "lost rank");
  EXPECT_EQ(cause["origin_rank"], 0);
  EXPECT_EQ(cause["time"].get<std::string>().size(), 24U);
}

TEST(RunFolder, RefusesAPathThatIsNoFolder) {
  const ScratchFolder scratch;
  const auto file = scratch.write("file", "x");
  EXPECT_THROW(RunFolder(file / "run"), ConfigError);
}

}  // namespace
}  // namespace lockstep
