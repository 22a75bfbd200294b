// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"

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

/// The one rank that speaks for a failed job: the origin, or the lowest other rank if the origin
/// can speak no more.
int speaker_of(const AbortCause& cause) noexcept;

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

  /// `event` will not outlast release_waiters().
  void watch(const Event& event);
  /// Fails the watched events that are not reached yet with what throw_if_raised() throws, and
  /// later ones at once. For a communication thread that hangs inside a library after a peer was
  /// lost: it may still touch the tensors of its operation, which that operation keeps alive.
  void release_waiters();

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;  // of all below
  std::optional<AbortCause> cause_;
  bool released_ = false;
  std::vector<Event> watched_;
  std::size_t prune_at_ = 64;
};

}  // namespace lockstep
