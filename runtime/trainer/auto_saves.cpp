// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/auto_saves.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lockstep {
namespace {

// Until the first save, which tells what saves cost.
constexpr std::int64_t kFirstSteps = 10;
constexpr std::size_t kSamples = 5;
constexpr std::int64_t kMostSteps = 1'000'000'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Intervals that differ by less are the same to a user.
constexpr double kToldChange = 1.5;

}  // namespace

void RecentMedian::add(double sample) {
  if (samples_.size() == kSamples) samples_.erase(samples_.begin());
  samples_.push_back(sample);
}

double RecentMedian::value() const {
  if (samples_.empty()) return 0.0;
  std::vector<double> sorted = samples_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

AutoSaves::AutoSaves(double mtbf, double restart, const Moment& now)
    : mtbf_(mtbf),
      restart_(restart),
      mark_(now),
      begun_(now),
      every_(kFirstSteps),
      due_(now.step + kFirstSteps) {}

void AutoSaves::began(const Moment& now) {
  begun_ = now;
  due_ = kNever;
  is_under_way_ = true;
}

bool AutoSaves::ended(const Moment& now, std::int64_t committed) {
  is_under_way_ = false;
  if (committed < begun_.step) {
    due_ = now.step + every_;
    return false;
  }
  blocking_.add(now.stalled - begun_.stalled);
  durable_.add(now.seconds - begun_.seconds);
  const double trained = now.seconds - mark_.seconds - (now.stalled - mark_.stalled);
  if (now.step > mark_.step) {
    step_seconds_.add(trained / static_cast<double>(now.step - mark_.step));
  }
  mark_ = now;
  return true;
}

SaveCosts AutoSaves::costs() const {
  return {.blocking = blocking_.value(), .durable = durable_.value(), .restart = restart_};
}

double AutoSaves::interval() const { return save_interval(costs(), mtbf_); }

std::int64_t AutoSaves::choose() const {
  const double steps = interval() / std::max(step_seconds_.value(), 1e-9);
  return std::clamp<std::int64_t>(std::llround(std::min(steps, static_cast<double>(kMostSteps))), 1,
                                  kMostSteps);
}

void AutoSaves::set(std::int64_t every, std::int64_t step) {
  every_ = every;
  due_ = std::max(begun_.step + every, step + 1);
}

std::string AutoSaves::news() {
  const double change =
      static_cast<double>(every_) / static_cast<double>(std::max<std::int64_t>(told_, 1));
  if (told_ > 0 && change < kToldChange && change > 1.0 / kToldChange) return {};
  told_ = every_;
  const double seconds = static_cast<double>(every_) * step_seconds_.value();
  const SaveCosts known = costs();
  char text[320];
  std::snprintf(text, sizeof text,
                "checkpoint.every = auto: %ld step%s, %.3g s; a save holds training up for %.3g s "
                "and is durable after %.3g s, a restart takes %.3g s, checkpoint.mtbf is %.4g s: "
                "%.2g %% of the time is lost",
                every_, every_ == 1 ? "" : "s", seconds, known.blocking, known.durable,
                known.restart, mtbf_, 100.0 * expected_loss(known, std::max(seconds, 1e-9), mtbf_));
  return text;
}

}  // namespace lockstep
