// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "runtime/trainer/metrics_log.h"

namespace lockstep {

/// "1h02m", "3m07s" or "12s".
std::string short_duration(double seconds);

/// The progress line of a run: step, loss, tokens/s, time to go, and the share of time lost to
/// data, communication and checkpoints. Rewritten in place on a terminal; elsewhere a line every
/// few seconds.
class Progress {
 public:
  enum class Style : std::uint8_t { in_place, lines };
  Progress(std::int64_t last_step, Style style);
  /// Ends an unfinished line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(const StepRecord& record);
  /// Shows what was added since the last time, if it is time or `record` is the last.
  void show(const StepRecord& record);
  /// A line of its own, e.g. a NOTE.
  void note(const std::string& text);

 private:
  std::int64_t last_step_;
  Style style_;
  bool open_line_ = false;
  double last_shown_s_ = -1e9;
  std::int64_t shown_step_ = -1;  // none yet
  struct Sums {
    double seconds = 0.0;
    double data = 0.0;
    double communication = 0.0;
    double checkpoint = 0.0;
    double tokens = 0.0;
  } sums_;
};

}  // namespace lockstep
