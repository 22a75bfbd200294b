// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "collectives/abort_signal.h"

namespace lockstep {

/// The deadline of an operation has passed. A backend that knows who is late catches it and says
/// so.
struct TimeoutError : CommError {
  using CommError::CommError;
};

/// One bounded wait of the communication thread: pause, then yield, then short sleeps, with a look
/// at the abort signal and at the deadline (design: pause ≤ 20 µs, yield ≤ 1 ms, then sleep).
///
///     while (!ready()) wait.step();
///
/// step() throws CommError when the signal is raised, TimeoutError when the deadline has passed.
/// progress() tells that something arrived, so that the next wait starts with short pauses again
/// (the deadline stays).
class Wait {
 public:
  Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
       std::string operation);
  void step();
  void progress() noexcept;
  const std::string& operation() const noexcept { return operation_; }

 private:
  const AbortSignal& abort_;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point began_;  // of the wait as a whole
  std::chrono::steady_clock::time_point quiet_;  // since when nothing has arrived
  std::string operation_;                        // "rank 1: all_reduce #12 of group data"
  unsigned spins_ = 0;
};

}  // namespace lockstep
