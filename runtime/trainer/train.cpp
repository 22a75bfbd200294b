// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/runtime/trainer.h"
#include "runtime/trainer/attempt_files.h"

namespace lockstep {
namespace {

// Options as they were read, or why they could not be.
struct ReadOptions {
  std::optional<Config> config;
  std::optional<TrainOptions> options;
  std::exception_ptr fault;
};

ReadOptions read_options(const std::vector<std::string>& arguments) {
  ReadOptions read;
  try {
    read.config = read_train_config(arguments);
    read.options = train_options(*read.config);
  } catch (const Error&) {
    read.fault = std::current_exception();
  }
  return read;
}

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

Outcome train_on(ProcessGroup& group, const ReadOptions& read, SignalWatch& signals) {
  std::unique_ptr<Trainer> trainer;
  try {
    agree(group.world(), "read the options", [&] {
      if (read.fault) std::rethrow_exception(read.fault);
    });
    trainer = std::make_unique<Trainer>(group, *read.options, *read.config, &signals);
    const TrainEnd end = trainer->run();
    if (group.rank() == 0) {
      std::printf("%s at step %ld of %ld: %s\n",
                  end.outcome == Outcome::finished ? "finished" : "saved", end.step,
                  read.options->steps, end.reason.c_str());
      std::printf("weights_sha256 %s\n", end.weights_sha256.c_str());
      std::fflush(stdout);
    }
    return group.leave(end.outcome);
  } catch (const std::exception& error) {
    const Outcome outcome = give_up(group, error);
    // Its threads may wait for a disk that does not answer; the process ends without them.
    static_cast<void>(trainer.release());
    return outcome;
  }
}

}  // namespace

int train(const std::vector<std::string>& arguments) {
  SignalWatch signals;  // before any thread
  // A file beyond `ulimit -f` is then an error of one save, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const ReadOptions read = read_options(arguments);
  std::optional<ProcessGroup> group;
  try {
    group = ProcessGroup::init(read.options ? read.options->group : GroupOptions{});
  } catch (const std::exception& error) {
    if (first_of_launcher()) print(describe(error));
    return static_cast<int>(outcome_of(error));
  }
  const int status = static_cast<int>(train_on(*group, read, signals));
  // After a failure threads may still hold what a tidy end would wait for.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace lockstep
