// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace lockstep::shared_memory {

/// The core that the calling thread is on.
int current_core() noexcept;

/// Leaves a core that two ranks wait for each other on.
///
/// The scheduler may keep two ranks that exchange many small messages on one core for seconds,
/// because each sleeps or yields most of the time; every round then costs two changes of thread.
class CoreNeighbour {
 public:
  /// `ranks` of this host that wait for each other.
  explicit CoreNeighbour(int ranks) noexcept : ranks_(ranks) {}

  /// This thread had to yield for a rank that was last seen on `core`. If that is this thread's own
  /// core, again and again, and there are cores for all ranks, the thread moves to another one of
  /// those it may use.
  void waited_for(int core) noexcept;

 private:
  int ranks_;
  int times_ = 0;
  std::chrono::steady_clock::time_point moved_;
};

}  // namespace lockstep::shared_memory
