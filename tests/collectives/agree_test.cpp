// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/agree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(Agree, GathersTextsOfAnyLength) {
  testing_support::run_ranks(3, [](Communicator& group) {
    const std::string mine(static_cast<std::size_t>(group.rank()) * 2, 'x');
    EXPECT_THAT(gather_text(group, mine), ElementsAre("", "xx", "xxxx"));
    EXPECT_THAT(gather_text(group, ""), ElementsAre("", "", ""));
    EXPECT_THAT(gather_text(group, std::string(300'000, 'y')),
                ElementsAre(std::string(300'000, 'y'), std::string(300'000, 'y'),
                            std::string(300'000, 'y')));
  });
}

TEST(Agree, BroadcastsTheTextOfTheRoot) {
  testing_support::run_ranks(3, [](Communicator& group) {
    EXPECT_EQ(broadcast_text(group, "from " + std::to_string(group.rank()), 2), "from 2");
    EXPECT_EQ(broadcast_text(group, group.rank() == 0 ? "" : "ignored", 0), "");
  });
}

TEST(Agree, SaysYesIfAnyRankDoes) {
  testing_support::run_ranks(3, [](Communicator& group) {
    EXPECT_TRUE(any(group, group.rank() == 1));
    EXPECT_FALSE(any(group, false));
  });
}

TEST(Agree, ReturnsWhereNobodyFails) {
  testing_support::run_ranks(2, [](Communicator& group) {
    int calls = 0;
    agree(group, "opening files", [&] { ++calls; });
    EXPECT_EQ(calls, 1);
  });
}

TEST(Agree, ThrowsTheFailureOfTheLowestRankEverywhere) {
  testing_support::run_ranks(4, [](Communicator& group) {
    const auto body = [&] {
      if (group.rank() == 1) throw StorageError("disk is full", "make room", Outcome::config);
      if (group.rank() == 3) throw std::runtime_error("another one");
    };
    try {
      agree(group, "opening files", body);
      ADD_FAILURE() << "no rank failed";
    } catch (const StorageError& error) {
      EXPECT_EQ(group.rank(), 1);
      EXPECT_STREQ(error.what(), "disk is full");
    } catch (const CommError& error) {
      EXPECT_NE(group.rank(), 1);
      EXPECT_STREQ(error.what(), "rank 1 failed in opening files: disk is full");
      EXPECT_EQ(error.hint(), "make room");
      EXPECT_EQ(error.outcome(), Outcome::config);
      EXPECT_EQ(error.origin_rank(), 1);
    }
    group.barrier().wait();  // the group works on
  });
}

}  // namespace
}  // namespace lockstep
