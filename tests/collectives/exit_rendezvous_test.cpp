// SPDX-License-Identifier: Apache-2.0
#include "collectives/exit_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

class ExitRendezvousOfThree : public testing::Test {
 protected:
  ExitRendezvous::Clock::time_point start_{};
  ExitRendezvous exit_{3, seconds(30)};
};

TEST_F(ExitRendezvousOfThree, WaitsForEveryRank) {
  EXPECT_FALSE(exit_.deadline().has_value());
  exit_.arrived(1, Outcome::finished, start_);
  exit_.arrived(2, Outcome::finished, start_ + seconds(1));
  EXPECT_FALSE(exit_.verdict(start_ + seconds(2)).has_value());
  EXPECT_THAT(exit_.missing(), ElementsAre(0));
  EXPECT_EQ(exit_.deadline(), start_ + seconds(30));
}

TEST_F(ExitRendezvousOfThree, AnswersWithTheLargestCode) {
  exit_.arrived(0, Outcome::finished, start_);
  exit_.arrived(1, Outcome::saved, start_);
  exit_.arrived(2, Outcome::finished, start_);
  const auto verdict = exit_.verdict(start_);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->outcome, Outcome::saved);
  EXPECT_TRUE(verdict->complete);
}

TEST_F(ExitRendezvousOfThree, AfterAFailureTheCauseDecidesAndNotTheLargestCode) {
  exit_.aborted(Outcome::config, start_);
  exit_.arrived(0, Outcome::failed_elsewhere, start_);
  exit_.arrived(1, Outcome::failed_elsewhere, start_);
  EXPECT_FALSE(exit_.verdict(start_ + seconds(1)).has_value());
  exit_.arrived(2, Outcome::failed_elsewhere, start_ + seconds(1));
  const auto verdict = exit_.verdict(start_ + seconds(1));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->outcome, Outcome::config);
  EXPECT_FALSE(verdict->complete);
}

TEST_F(ExitRendezvousOfThree, DoesNotWaitForALostRank) {
  exit_.aborted(Outcome::failed_elsewhere, start_);
  exit_.lost(2);
  exit_.arrived(0, Outcome::failed_elsewhere, start_);
  exit_.arrived(1, Outcome::failed_elsewhere, start_);
  EXPECT_TRUE(exit_.verdict(start_).has_value());
}

TEST_F(ExitRendezvousOfThree, AfterAFailureGivesStragglersShortTime) {
  exit_.aborted(Outcome::failed_elsewhere, start_);
  exit_.arrived(0, Outcome::failed_elsewhere, start_);
  const auto late = start_ + ExitRendezvous::kGraceAfterAbort;
  EXPECT_FALSE(exit_.verdict(late - seconds(1)).has_value());
  ASSERT_TRUE(exit_.verdict(late).has_value());
  EXPECT_EQ(exit_.verdict(late)->outcome, Outcome::failed_elsewhere);
}

TEST_F(ExitRendezvousOfThree, AProcessThatDiedBetweenGoodbyeAndVerdictLeavesMpiUnfinished) {
  exit_.arrived(0, Outcome::finished, start_);
  exit_.arrived(1, Outcome::finished, start_);
  exit_.arrived(2, Outcome::finished, start_);
  exit_.lost(1);
  ASSERT_TRUE(exit_.verdict(start_).has_value());
  EXPECT_EQ(exit_.verdict(start_)->outcome, Outcome::finished);
  EXPECT_FALSE(exit_.verdict(start_)->complete);
}

}  // namespace
}  // namespace lockstep
