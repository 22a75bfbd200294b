// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::optim {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

/// Reads "constant", "linear", "cosine" or "wsd". Throws ConfigError for anything else.
ScheduleKind parse_schedule(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  double peak = 3e-4;
  std::int64_t warmup = 100;          // updates
  std::int64_t total = 0;             // updates until the last rate is reached
  std::optional<double> min_lr = {};  // default: 0.1 · peak
};

/// The learning rate of each update: linear warm-up, peak · k / warmup, then by kind
/// - constant: the peak for ever;
/// - linear: a line from the peak to min_lr at update `total`;
/// - cosine: half a cosine between the same two (Loshchilov & Hutter, SGDR, 2017);
/// - wsd (warm-up, stable, decay: Hu et al., MiniCPM, 2024, section 4): the peak until the last
///   tenth of `total`, rounded down to whole updates but at least one, then a line to min_lr. A
///   warm-up that reaches into that tenth shortens it.
/// Afterwards the last rate stays.
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
