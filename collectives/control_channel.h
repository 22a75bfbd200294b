// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/abort_signal.h"
#include "collectives/control_link.h"

namespace lockstep {

struct ControlOptions {
  int rank = 0;
  int size = 1;
  std::vector<std::string> names;  // by rank, for messages: "rank 2 (pid 17 on host a)"
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence_timeout{6000};
  std::chrono::milliseconds exit_timeout{30000};
};

/// Keeps the processes of a job informed of each other while they compute: a thread a rank, a star
/// of connections to rank 0, heartbeats. A rank that is lost, silent or gives up raises the abort
/// signal on all ranks with one cause. Calls from any thread.
class ControlChannel {
 public:
  /// Rank 0 gives a link for each rank (the first unused), another rank one link to rank 0. A job
  /// of one needs none.
  ControlChannel(ControlOptions options, std::vector<ControlLink> links,
                 std::shared_ptr<AbortSignal> signal);
  ~ControlChannel();  // closes: to peers that have not had this rank's goodbye it is lost
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  void abort(AbortCause cause) noexcept;
  /// Called once, from the control thread, after the peers were told.
  void on_abort(std::function<void(const AbortCause&)> callback);
  bool lost_peer_within(std::chrono::milliseconds window) const noexcept;

  /// The exit rendezvous: says goodbye, waits for rank 0's verdict. Never longer than exit_timeout
  /// and a little.
  Verdict leave(Outcome mine) noexcept;
  /// After leave() on other ranks: lets the process of rank 0 end first, so that it can still write
  /// while the launcher leaves it alone.
  void wait_for_root_to_end(std::chrono::milliseconds limit) noexcept;

 private:
  class Loop;
  std::shared_ptr<AbortSignal> signal_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep
