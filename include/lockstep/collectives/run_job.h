// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>

#include "lockstep/collectives/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// The main function of a rank: joins the job, runs `body`, leaves together with the other ranks
/// and ends the process with the status that all agree on.
///
/// What `body` throws ends the job on every rank, and one rank says on stderr what failed and what
/// to do. A SignalWatch that `body` uses is made before this call. Ends by std::_Exit: objects
/// outside of `body` are not destroyed.
[[noreturn]] void run_job(const GroupOptions& options,
                          const std::function<Outcome(ProcessGroup& group)>& body);

/// Ends the job with `error` as run_job() does when `body` throws it, from any thread: for one that
/// watches over a thread that hangs. At most one thread of a process calls it.
[[noreturn]] void end_job(ProcessGroup& group, const std::exception& error);

}  // namespace lockstep
