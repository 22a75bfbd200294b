// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"
#include "optim/options.h"

namespace lockstep::optim {

ScheduleKind parse_schedule(std::string_view name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "wsd") return ScheduleKind::wsd;
  throw ConfigError("schedule.name = " + std::string(name), "give constant, linear, cosine or wsd");
}

Schedule::Schedule(const ScheduleOptions& options)
    : kind_(options.kind),
      peak_(options.peak),
      min_lr_(options.min_lr.value_or(0.1 * options.peak)),
      warmup_(options.warmup),
      total_(options.total) {
  require_not_negative("optim.lr", peak_);
  require_not_negative("schedule.min_lr", min_lr_);
  require_not_negative("schedule.warmup", static_cast<double>(warmup_));
  require_not_negative("schedule.total", static_cast<double>(total_));
  if (warmup_ > total_) {
    note_ = "schedule.warmup = " + std::to_string(warmup_) +
            " is longer than schedule.total = " + std::to_string(total_) + " and is cut to it";
    warmup_ = total_;
  }
}

float Schedule::at(std::int64_t k) const noexcept {
  k = std::clamp<std::int64_t>(k, 1, std::max<std::int64_t>(total_, 1));
  if (k <= warmup_) {
    return static_cast<float>(peak_ * static_cast<double>(k) / static_cast<double>(warmup_));
  }
  std::int64_t peak_until = warmup_;
  if (kind_ == ScheduleKind::wsd) {
    peak_until = std::max(warmup_, total_ - std::max<std::int64_t>(total_ / 10, 1));
  }
  if (kind_ == ScheduleKind::constant || k <= peak_until) return static_cast<float>(peak_);
  // Here peak_until < k; without a total every update is the last.
  const double progress = total_ > peak_until ? static_cast<double>(k - peak_until) /
                                                    static_cast<double>(total_ - peak_until)
                                              : 1.0;
  const double left = kind_ == ScheduleKind::cosine
                          ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                          : 1.0 - progress;
  return static_cast<float>(min_lr_ + (peak_ - min_lr_) * left);
}

}  // namespace lockstep::optim
