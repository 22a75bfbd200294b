// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/throttle.h"

#include <algorithm>

namespace lockstep::s3 {

Throttle::Turn::Turn(Throttle& throttle, std::chrono::milliseconds patience) : throttle_(throttle) {
  std::unique_lock lock(throttle_.mutex_);
  throttle_.room_.wait_for(lock, patience,
                           [this] { return throttle_.running_ + 1 <= throttle_.allowed_; });
  ++throttle_.running_;
  round_ = throttle_.cuts_;
}

Throttle::Turn::~Turn() {
  {
    const std::lock_guard lock(throttle_.mutex_);
    --throttle_.running_;
  }
  throttle_.room_.notify_all();
}

void Throttle::Turn::was_throttled() {
  const std::lock_guard lock(throttle_.mutex_);
  if (round_ != throttle_.cuts_) return;
  ++throttle_.cuts_;
  throttle_.allowed_ = std::max(1.0, throttle_.allowed_ / 2);
}

void Throttle::Turn::went_well() {
  const std::lock_guard lock(throttle_.mutex_);
  throttle_.allowed_ = std::min(throttle_.most_, throttle_.allowed_ + 1 / throttle_.allowed_);
}

double Throttle::allowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

}  // namespace lockstep::s3
