// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/run_job.h"
#include "lockstep/runtime/trainer.h"

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

Outcome train_on(ProcessGroup& group, const ReadOptions& read, SignalWatch& signals,
                 std::unique_ptr<Trainer>& trainer) {
  agree(group.world(), "read the options", [&] {
    if (read.fault) std::rethrow_exception(read.fault);
  });
  trainer = std::make_unique<Trainer>(group, *read.options, *read.config, &signals);
  const TrainEnd end = trainer->run();
  if (group.rank() == 0) {
    std::printf("%s at step %ld of %ld: %s\n",
                end.outcome == Outcome::finished      ? "finished"
                : end.outcome == Outcome::interrupted ? "interrupted"
                                                      : "saved",
                end.step, read.options->steps, end.reason.c_str());
    std::printf("weights_sha256 %s\n", end.weights_sha256.c_str());
    std::fflush(stdout);
  }
  trainer.reset();
  return end.outcome;
}

}  // namespace

void train(const std::vector<std::string>& arguments) {
  SignalWatch signals;  // before any thread
  // A file beyond `ulimit -f` is then an error of one save, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const ReadOptions read = read_options(arguments);
  // After a failure its threads may wait for a disk that does not answer: it is then not destroyed.
  std::unique_ptr<Trainer> trainer;
  run_job(read.options ? read.options->group : GroupOptions{},
          [&](ProcessGroup& group) { return train_on(group, read, signals, trainer); });
}

}  // namespace lockstep
