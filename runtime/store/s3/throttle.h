// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lockstep::s3 {

/// How many requests are on their way at once: half as many after a store has asked to slow down,
/// one more after each round that went well. Any thread.
class Throttle {
 public:
  /// `most`: as many as there ever are; the number it begins with.
  explicit Throttle(double most) : most_(most), allowed_(most) {}

  /// A request, from its beginning to its end.
  class Turn {
   public:
    /// Waits until there is room, or for `patience`: what has no more time than that is to fail by
    /// its own deadline, not to hang here.
    Turn(Throttle& throttle, std::chrono::milliseconds patience);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// The store has asked to slow down. Requests that were on their way together count once.
    void was_throttled();
    void went_well();

   private:
    Throttle& throttle_;
    std::uint64_t round_ = 0;  // cuts before it began
  };

  double allowed() const;

 private:
  const double most_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  double allowed_;
  double running_ = 0;
  std::uint64_t cuts_ = 0;
};

}  // namespace lockstep::s3
