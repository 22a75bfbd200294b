// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

/// The signals by which a scheduler, a launcher or a person asks a run to stop: SIGTERM, SIGINT,
/// SIGHUP, SIGUSR1 and SIGUSR2. While this lives they are blocked and read from a descriptor, so
/// that nothing is interrupted.
///
/// Make it on the main thread before any other thread is started: threads inherit the mask.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();  // the old mask is back; signals that nobody has polled are dropped
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The name of the first signal that has come, "SIGTERM"; none yet: empty. One thread at a time,
  /// as all calls.
  const std::optional<std::string>& poll();
  /// Whether the signal that came first has come again, after poll() had told it for a second: what
  /// a launcher sends twice is one notice, and what another one sends does not hurry the first.
  bool insists();

 private:
  int descriptor_ = -1;
  std::optional<std::string> first_;
  std::chrono::steady_clock::time_point first_told_;
  bool insists_ = false;
};

}  // namespace lockstep
