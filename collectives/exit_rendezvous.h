// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "collectives/control_frame.h"

namespace lockstep {

/// Rank 0's book of who has come to the exit: a launcher kills the others as soon as one process
/// has ended, so none ends before all are there or given up.
class ExitRendezvous {
 public:
  using Clock = std::chrono::steady_clock;

  /// `exit_timeout` runs from the first arrival; after a failure `kGraceAfterAbort` runs from it.
  ExitRendezvous(int size, std::chrono::milliseconds exit_timeout);

  void arrived(int rank, Outcome outcome, Clock::time_point now);
  /// The process is gone or stopped: nobody waits for it.
  void lost(int rank);
  void aborted(Outcome outcome, Clock::time_point now);
  bool has_arrived(int rank) const;

  /// Ranks that the others would wait for.
  std::vector<int> missing() const;
  /// When waiting ends; nothing as long as nobody has come.
  std::optional<Clock::time_point> deadline() const;
  /// The answer for all, once it is known. A deadline that passes without a failure is no answer:
  /// it is itself a failure, which the caller reports by aborted().
  std::optional<Verdict> verdict(Clock::time_point now) const;

  // Open MPI's mpirun kills what is left 2 s after a process has died, rank 0 with its result too.
  static constexpr std::chrono::milliseconds kGraceAfterAbort{1500};

 private:
  struct Place {
    std::optional<Outcome> outcome;
    bool lost = false;
  };
  std::vector<Place> places_;
  std::chrono::milliseconds exit_timeout_;
  std::optional<Clock::time_point> first_arrival_;
  std::optional<Clock::time_point> abort_time_;
  Outcome abort_outcome_ = Outcome::internal;
};

}  // namespace lockstep
