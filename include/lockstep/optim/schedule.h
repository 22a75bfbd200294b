// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::optim {

enum class ScheduleKind : std::uint8_t { constant, cosine };

/// Reads "constant" or "cosine". Throws ConfigError for anything else.
ScheduleKind parse_schedule(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  double peak = 3e-4;
  std::int64_t warmup = 100;          // updates
  std::int64_t total = 0;             // updates until the last rate is reached
  std::optional<double> min_lr = {};  // default: 0.1 · peak
};

/// The learning rate of each update: linear warm-up, peak · k / warmup, then the peak for ever
/// (constant) or half a cosine from it to min_lr at update `total` (Loshchilov & Hutter, SGDR,
/// 2017). Afterwards the last rate stays.
class Schedule {
 public:
  /// Throws ConfigError that names the key if a number is negative or not finite.
  explicit Schedule(const ScheduleOptions& options);
  /// The rate of update `k`, counted from 1. Computed in f64, rounded to f32.
  float at(std::int64_t k) const noexcept;
  /// What was changed to make sense of the options, for the log; empty: nothing.
  const std::string& note() const noexcept { return note_; }

 private:
  ScheduleKind kind_;
  double peak_;
  double min_lr_;
  std::int64_t warmup_;
  std::int64_t total_;
  std::string note_;
};

}  // namespace lockstep::optim
