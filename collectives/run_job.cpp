// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/run_job.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "collectives/abort_signal.h"

namespace lockstep {
namespace {

void print(const std::string& text) { std::fprintf(stderr, "lockstep: %s\n", text.c_str()); }

// Processes that cannot form a job know their number only from the launcher's variables.
bool first_of_launcher() {
  for (const char* name : {"SLURM_PROCID", "RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

AbortCause cause_of(const std::exception& error, int rank) {
  AbortCause cause{.outcome = outcome_of(error),
                   .kind = "exception",
                   .origin_rank = rank,
                   .what = error.what(),
                   .hint = {}};
  if (const auto* ours = dynamic_cast<const Error*>(&error)) cause.hint = ours->hint();
  const auto* told = dynamic_cast<const CommError*>(&error);
  if (told && told->origin_rank() >= 0) cause.origin_rank = told->origin_rank();
  return cause;
}

// The failure on this rank, told to all others; who speaks says it, before the launcher may see an
// end and kill the rest.
Outcome give_up(ProcessGroup& group, const std::exception& error) {
  group.abort(cause_of(error, group.rank()));
  const auto cause = group.abort_signal()->cause();
  if (cause && group.rank() == speaker_of(*cause)) {
    const bool named = cause->what.starts_with("rank ") || cause->origin_rank < 0;
    print((named ? "" : "rank " + std::to_string(cause->origin_rank) + ": ") + cause->what +
          (cause->hint.empty() ? "" : "\n  hint: " + cause->hint));
  }
  return group.leave(outcome_of(error));
}

[[noreturn]] void end(Outcome outcome) {
  // After a failure threads may still hold what a tidy end would wait for.
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(outcome));
}

}  // namespace

void end_job(ProcessGroup& group, const std::exception& error) { end(give_up(group, error)); }

void run_job(const GroupOptions& options, const std::function<Outcome(ProcessGroup& group)>& body) {
  std::optional<ProcessGroup> group;
  try {
    group = ProcessGroup::init(options);
  } catch (const std::exception& error) {
    if (first_of_launcher()) print(describe(error));
    end(outcome_of(error));
  }
  try {
    const Outcome mine = body(*group);
    end(group->leave(mine));
  } catch (const std::exception& error) {
    end_job(*group, error);
  }
}

}  // namespace lockstep
