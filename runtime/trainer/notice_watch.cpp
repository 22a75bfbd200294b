// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/notice_watch.h"

#include <chrono>
#include <system_error>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/run_job.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLook(20);

}  // namespace

NoticeWatch::NoticeWatch(ProcessGroup& group, SignalWatch& signals)
    : group_(group), signals_(signals) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return;  // a save that nobody can cut short is better than none
  }
}

NoticeWatch::~NoticeWatch() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void NoticeWatch::run() {
  while (!ending_) {
    if (signals_.insists()) {
      end_job(group_, CommError(signals_.poll().value_or("a notice") +
                                    " again during the last save: left at once",
                                "the last commit stands, the next attempt resumes from it",
                                Outcome::interrupted, group_.rank()));
    }
    const auto cause = group_.abort_signal()->cause();
    if (cause && cause->outcome == Outcome::interrupted) {
      end_job(group_, CommError(cause->what, cause->hint, cause->outcome, cause->origin_rank));
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace lockstep
