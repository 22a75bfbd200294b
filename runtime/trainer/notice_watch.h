// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

#include "lockstep/collectives/process_group.h"
#include "lockstep/runtime/preemption.h"

namespace lockstep {

/// While this lives, a signal that insists ends the job at once (76), whatever the main thread of
/// any rank waits for: a store may not answer for minutes. What is not committed by then is lost.
///
/// Every rank has one at the same time, made and destroyed by the main thread, which does not poll
/// `signals` meanwhile. The destructor does not return while the job is being ended.
class NoticeWatch {
 public:
  NoticeWatch(ProcessGroup& group, SignalWatch& signals);
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

 private:
  void run();

  ProcessGroup& group_;
  SignalWatch& signals_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace lockstep
