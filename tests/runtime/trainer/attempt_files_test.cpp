// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/attempt_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing_support::ScratchFolder;

AbortCause lost(int rank) {
  return {.outcome = Outcome::failed_elsewhere,
          .kind = kLostRank,
          .origin_rank = rank,
          .what = "rank is gone",
          .hint = "look"};
}

TEST(AttemptFiles, LeaveACauseOnEveryRankAndAResultOnOne) {
  for (const int rank : {0, 1}) {
    const ScratchFolder scratch;
    AttemptFiles files;
    files.open(std::make_shared<RunFolder>(scratch.path()), rank);
    files.set_attempt(4);
    files.set_progress(9, 900);
    files.write(lost(2));
    const auto cause = scratch.path() / "cause" / ("4." + std::to_string(rank) + ".json");
    EXPECT_TRUE(std::filesystem::exists(cause));
    EXPECT_EQ(std::filesystem::exists(scratch.path() / "result.json"), rank == 0);
    if (rank != 0) continue;
    const auto result = nlohmann::json::parse(std::ifstream(scratch.path() / "result.json"));
    EXPECT_EQ(result["code"], 79);
    EXPECT_EQ(result["steps"], 9);
    EXPECT_EQ(result["attempt"], 4);
  }
}

TEST(AttemptFiles, TouchNothingBeforeTheFolderIsOurs) {
  const ScratchFolder scratch;
  AttemptFiles files;
  files.write(lost(1));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(AttemptFiles, LeaveTheResultOfTheAttemptBeforeUntilTheClaim) {
  const ScratchFolder scratch;
  AttemptFiles files;
  files.open(std::make_shared<RunFolder>(scratch.path()), 0);
  files.write(lost(1));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "result.json"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "cause/0.0.json"));
}

TEST(SpeakerOf, IsTheOriginUnlessItCanSpeakNoMore) {
  EXPECT_EQ(speaker_of(lost(0)), 1);
  EXPECT_EQ(speaker_of(lost(2)), 0);
  AbortCause cause = lost(2);
  cause.kind = "exception";
  EXPECT_EQ(speaker_of(cause), 2);
  cause.origin_rank = -1;
  EXPECT_EQ(speaker_of(cause), 0);
}

}  // namespace
}  // namespace lockstep
