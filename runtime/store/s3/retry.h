// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace lockstep::s3 {

/// How long and how often one operation is tried.
struct RetryLimits {
  std::chrono::milliseconds first{100};  // the longest first pause
  std::chrono::milliseconds longest{20'000};
  std::chrono::milliseconds deadline{120'000};  // of the operation with all its attempts
  int attempts = 12;
};

/// The attempts of one operation: pauses of full jitter, whose bound doubles. Does not sleep
/// itself. One thread.
class Retries {
 public:
  using Clock = std::chrono::steady_clock;

  /// `random` gives values in [0, 1).
  Retries(const RetryLimits& limits, Clock::time_point start, std::function<double()> random);

  /// After a failed attempt: the pause before the next, at least `asked` (Retry-After); nothing
  /// where the attempts are spent or the next could not begin before the deadline.
  std::optional<std::chrono::milliseconds> next(Clock::time_point now,
                                                std::chrono::milliseconds asked = {});
  /// What is left for the attempt that begins now; not negative.
  std::chrono::milliseconds left(Clock::time_point now) const;

 private:
  RetryLimits limits_;
  Clock::time_point end_;
  std::function<double()> random_;
  std::chrono::milliseconds bound_;
  int attempts_ = 1;
};

}  // namespace lockstep::s3
