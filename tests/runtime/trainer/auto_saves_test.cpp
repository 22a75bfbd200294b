// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/auto_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

double interval(double blocking, double mtbf, double durable = 0.0) {
  return save_interval({.blocking = blocking, .durable = durable, .restart = 0.0}, mtbf);
}

TEST(SaveInterval, IsYoungsWithDalysCorrection) {
  // 0.5 s and two hours: Young's is 84.85 s.
  EXPECT_NEAR(interval(0.5, 7200), 84.52, 0.01);
  EXPECT_NEAR(interval(60, 3600), 617.88, 0.01);
}

TEST(SaveInterval, LosesLessThanItsNeighbours) {
  for (const double blocking : {1.0, 30.0, 200.0}) {
    const double mtbf = 5000;
    // Waste by Daly's model with exponential failures: the share of time that is not training.
    const auto waste = [&](double every) {
      return mtbf * std::expm1((every + blocking) / mtbf) / every;
    };
    const double best = interval(blocking, mtbf);
    EXPECT_LT(waste(best), waste(best * 0.8)) << blocking;
    EXPECT_LT(waste(best), waste(best * 1.25)) << blocking;
  }
}

TEST(SaveInterval, NeverEndsBeforeTheSaveDoes) { EXPECT_EQ(interval(0.5, 7200, 300), 300); }

TEST(SaveInterval, IsTheTimeBetweenFailuresWhereSavesTakeLongerThanThat) {
  EXPECT_EQ(interval(1000, 400), 400);
  EXPECT_LT(interval(799, 400), 400);
}

TEST(SaveInterval, KeepsTheLogShortWhereThatCostsLittle) {
  EXPECT_EQ(interval(0, 7200), 10);
  EXPECT_EQ(interval(0, 100), 1);
  EXPECT_EQ(interval(-1, 100), 1) << "a clock that goes back";
}

TEST(SaveInterval, LosesWhatTheReferencesExampleLoses) {
  const SaveCosts costs{.blocking = 0.5, .durable = 60, .restart = 120};
  EXPECT_NEAR(expected_loss(costs, 85, 7200), 0.037, 0.0005);
}

TEST(RecentMedian, ForgetsHiccupsAndOldSamples) {
  RecentMedian median;
  EXPECT_EQ(median.value(), 0);
  median.add(1);
  median.add(50);
  median.add(2);
  EXPECT_EQ(median.value(), 2);
  for (int i = 0; i < 5; ++i) median.add(9);
  EXPECT_EQ(median.value(), 9);
}

/// Steps of one second; a save holds each rank up for `blocking` and is durable after `durable`.
class Simulation {
 public:
  AutoSaves saves{7200, 30, {}};
  AutoSaves::Moment now;

  void train_until_due() {
    while (!saves.is_due(now.step)) step();
  }
  void step() {
    ++now.step;
    now.seconds += 1;
  }
  /// Whether the interval is to be chosen.
  bool save(double blocking, int durable_steps) {
    saves.began(now);
    now.seconds += blocking;
    now.stalled += blocking;
    const std::int64_t step_of_save = now.step;
    for (int i = 0; i < durable_steps; ++i) step();
    return saves.ended(now, step_of_save);
  }
};

TEST(AutoSaves, SaveSoonAndThenByWhatThatHasCost) {
  Simulation run;
  run.train_until_due();
  EXPECT_EQ(run.now.step, 10);
  ASSERT_TRUE(run.save(0.5, 3));
  EXPECT_EQ(run.saves.choose(), 85);
  run.saves.set(85, run.now.step);
  EXPECT_THAT(run.saves.news(), HasSubstr("checkpoint.every = auto: 85 steps, 85 s; a save holds "
                                          "training up for 0.5 s and is durable after 3.5 s, a "
                                          "restart takes 30 s, checkpoint.mtbf is 7200 s: 1.6 %"));
  EXPECT_EQ(run.saves.news(), "") << "it was told";
  run.train_until_due();
  EXPECT_EQ(run.now.step, 95);
}

TEST(AutoSaves, TakeTheIntervalOfRankZero) {
  Simulation run;
  run.train_until_due();
  run.save(0.5, 3);
  run.saves.set(20, run.now.step);
  run.train_until_due();
  EXPECT_EQ(run.now.step, 30);
}

TEST(AutoSaves, AreNotDueWhileOneIsUnderWayAndThenAtOnceIfTheyWouldHaveBeen) {
  Simulation run;
  run.train_until_due();
  EXPECT_FALSE(run.saves.is_under_way());
  run.saves.began(run.now);
  EXPECT_TRUE(run.saves.is_under_way());
  for (int i = 0; i < 1000; ++i) {
    run.step();
    ASSERT_FALSE(run.saves.is_due(run.now.step));
  }
  ASSERT_TRUE(run.saves.ended(run.now, 10));
  EXPECT_EQ(run.saves.choose(), 1000) << "as long as a save takes";
  run.saves.set(5, run.now.step);
  EXPECT_FALSE(run.saves.is_due(run.now.step));
  EXPECT_TRUE(run.saves.is_due(run.now.step + 1));
}

TEST(AutoSaves, LearnNothingFromASaveThatFailedAndTryAgainLater) {
  Simulation run;
  run.train_until_due();
  run.saves.began(run.now);
  run.step();
  EXPECT_FALSE(run.saves.ended(run.now, 0));
  run.train_until_due();
  EXPECT_EQ(run.now.step, 21);
  ASSERT_TRUE(run.save(0.5, 1));
  EXPECT_EQ(run.saves.choose(), 85);
}

}  // namespace
}  // namespace lockstep
