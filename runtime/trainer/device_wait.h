// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// Waits for `event` of `compute`. A device that hangs says nothing: there it waits no longer than
/// the group's timeout, and `what` is in the message. On the CPU the work is a thread's of ours,
/// which takes as long as it takes and fails by itself.
inline void wait_for_compute(const Communicator& group, const Stream& compute, const Event& event,
                             const std::string& what) {
  if (compute.device().kind == DeviceKind::cpu) return event.wait();
  group.wait_for(event, what);
}

}  // namespace lockstep
