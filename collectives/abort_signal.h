// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/core/error.h"

namespace lockstep {

/// Kinds of causes whose origin can say nothing more: its process is gone, or silent.
inline constexpr const char* kLostRank = "lost rank";
inline constexpr const char* kStoppedRank = "stopped rank";

/// Why a job ends early, as every rank is told it.
struct AbortCause {
  Outcome outcome = Outcome::internal;
  std::string kind;  // "lost rank", "stopped rank", "exception", "timeout", …
  int origin_rank = -1;
  std::string what;
  std::string hint;
};

/// Raised once a process when some rank has failed; every wait of this process looks at it.
///
/// All calls from any thread.
class AbortSignal {
 public:
  /// The first cause stays; later ones are dropped. Returns whether this one was the first.
  bool raise(AbortCause cause);
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  std::optional<AbortCause> cause() const;
  /// Throws CommError with the cause's text, outcome and origin if the signal is raised.
  void throw_if_raised() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::optional<AbortCause> cause_;
};

}  // namespace lockstep
