// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::optim {
namespace {

ScheduleOptions cosine(std::int64_t warmup, std::int64_t total) {
  return {.peak = 1.0, .warmup = warmup, .total = total, .min_lr = 0.1};
}

void expect_rates(const Schedule& schedule, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(i) + 1), expected[i], 1e-6) << i + 1;
  }
}

TEST(Schedule, WarmsUpFromTheFirstUpdateAndEndsAtTheMinimum) {
  expect_rates(Schedule(cosine(4, 10)),
               {0.25, 0.5, 0.75, 1.0, 0.939711432, 0.775, 0.55, 0.325, 0.160288568, 0.1});
}

TEST(Schedule, FallsInALine) {
  expect_rates(
      Schedule({.kind = ScheduleKind::linear, .peak = 1.0, .warmup = 2, .total = 8, .min_lr = 0.1}),
      {0.5, 1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.1});
}

TEST(Schedule, StaysAtThePeakUntilTheLastTenth) {
  const Schedule schedule(
      {.kind = ScheduleKind::wsd, .peak = 1.0, .warmup = 2, .total = 25, .min_lr = 0.1});
  EXPECT_EQ(schedule.at(1), 0.5F);
  for (std::int64_t k = 2; k <= 23; ++k) EXPECT_EQ(schedule.at(k), 1.0F) << k;
  EXPECT_FLOAT_EQ(schedule.at(24), 0.55F);
  EXPECT_FLOAT_EQ(schedule.at(25), 0.1F);
  EXPECT_FLOAT_EQ(schedule.at(26), 0.1F);
  // A tenth of few updates is one; a long warm-up takes from the decay.
  expect_rates(
      Schedule({.kind = ScheduleKind::wsd, .peak = 1.0, .warmup = 0, .total = 3, .min_lr = 0.1}),
      {1.0, 1.0, 0.1});
  EXPECT_EQ(
      Schedule({.kind = ScheduleKind::wsd, .peak = 1.0, .warmup = 20, .total = 20, .min_lr = 0.1})
          .at(20),
      1.0F);
}

TEST(Schedule, ReachesThePeakOnceAndNeverZero) {
  const Schedule schedule(cosine(4, 10));
  int peaks = 0;
  for (std::int64_t k = 1; k <= 10; ++k) {
    EXPECT_GT(schedule.at(k), 0.0F);
    peaks += schedule.at(k) == 1.0F ? 1 : 0;
  }
  EXPECT_EQ(peaks, 1);
}

TEST(Schedule, StartsOnTheCurveWithoutWarmUp) {
  expect_rates(Schedule(cosine(0, 4)), {0.868198052, 0.55, 0.231801948, 0.1});
}

TEST(Schedule, NeverDecaysIfWarmUpIsAllThereIs) {
  expect_rates(Schedule(cosine(4, 4)), {0.25, 0.5, 0.75, 1.0, 1.0, 1.0});
}

TEST(Schedule, StaysAtTheLastRate) {
  const Schedule schedule(cosine(4, 10));
  EXPECT_EQ(schedule.at(11), schedule.at(10));
  EXPECT_EQ(schedule.at(1000), schedule.at(10));
}

TEST(Schedule, IsFiniteForOneUpdateOrNone) {
  EXPECT_FLOAT_EQ(Schedule(cosine(0, 1)).at(1), 0.1F);
  EXPECT_FLOAT_EQ(Schedule(cosine(0, 0)).at(1), 0.1F);
}

TEST(Schedule, CutsAWarmUpLongerThanTheTotalAndSaysSo) {
  const Schedule schedule(cosine(100, 4));
  expect_rates(schedule, {0.25, 0.5, 0.75, 1.0, 1.0});
  EXPECT_EQ(schedule.note(),
            "schedule.warmup = 100 is longer than schedule.total = 4 and is cut to it");
  EXPECT_EQ(Schedule(cosine(4, 4)).note(), "");
}

TEST(Schedule, StaysAtThePeakWhenConstant) {
  ScheduleOptions options = cosine(2, 10);
  options.kind = ScheduleKind::constant;
  expect_rates(Schedule(options), {0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0});
}

TEST(Schedule, EndsAtATenthOfThePeakByDefault) {
  const Schedule schedule({.peak = 3e-4, .warmup = 1, .total = 10});
  EXPECT_FLOAT_EQ(schedule.at(1), 3e-4F);
  EXPECT_FLOAT_EQ(schedule.at(10), 3e-5F);
}

TEST(Schedule, NamesTheOptionThatIsOutOfRange) {
  const auto message = [](const ScheduleOptions& options) -> std::string {
    try {
      const Schedule schedule(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.peak = -1.0}), "optim.lr = -1");
  EXPECT_EQ(message({.peak = std::numeric_limits<double>::quiet_NaN()}), "optim.lr = nan");
  EXPECT_EQ(message({.warmup = -3, .total = 10}), "schedule.warmup = -3");
  EXPECT_EQ(message({.total = -1}), "schedule.total = -1");
  EXPECT_EQ(message({.total = 10, .min_lr = -0.1}), "schedule.min_lr = -0.1");
  EXPECT_THROW(parse_schedule("cosin"), ConfigError);
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::constant);
}

}  // namespace
}  // namespace lockstep::optim
