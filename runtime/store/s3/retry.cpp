// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/retry.h"

#include <algorithm>
#include <utility>

namespace lockstep::s3 {

using std::chrono::milliseconds;

Retries::Retries(const RetryLimits& limits, Clock::time_point start, std::function<double()> random)
    : limits_(limits),
      end_(start + limits.deadline),
      random_(std::move(random)),
      bound_(std::min(limits.first, limits.longest)) {}

std::optional<milliseconds> Retries::next(Clock::time_point now, milliseconds asked) {
  if (attempts_ >= limits_.attempts) return std::nullopt;
  const auto jittered =
      milliseconds(static_cast<milliseconds::rep>(random_() * static_cast<double>(bound_.count())));
  const milliseconds pause = std::max(jittered, asked);
  if (pause >= left(now)) return std::nullopt;
  ++attempts_;
  bound_ = std::min(bound_ * 2, limits_.longest);
  return pause;
}

milliseconds Retries::left(Clock::time_point now) const {
  if (now >= end_) return milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(end_ - now);
}

}  // namespace lockstep::s3
