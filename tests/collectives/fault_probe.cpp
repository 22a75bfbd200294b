// SPDX-License-Identifier: Apache-2.0
// A rank for tests/fault/lost_rank_test.py: all-reduces until something happens to one of them, and
// leaves notes in a folder: pid.R, step.R, cause.R, exit.R. SIGUSR1 makes the rank throw.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {
namespace {

volatile std::sig_atomic_t must_throw = 0;

void note(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = folder + "/" + name;
  std::ofstream(path + ".new") << text << '\n';
  std::rename((path + ".new").c_str(), path.c_str());
}

int run(const std::string& folder, const std::string& backend, std::chrono::seconds time) {
  GroupOptions options;
  options.backend = backend;
  ProcessGroup group = ProcessGroup::init(options);
  const std::string rank = std::to_string(group.rank());
  note(folder, "pid." + rank, std::to_string(getpid()));
  group.on_abort([&](const AbortCause& cause) {
    note(folder, "cause." + rank,
         std::to_string(cause.origin_rank) + '\n' + cause.kind + '\n' +
             std::to_string(static_cast<int>(cause.outcome)) + '\n' + cause.what);
  });
  Outcome mine = Outcome::finished;
  try {
    const auto end = std::chrono::steady_clock::now() + time;
    const Tensor gradient = Tensor::zeros(Device{}, {1 << 18}, DType::f32);
    const Tensor go_on(Device{}, {1}, DType::i64);
    for (int step = 0;; ++step) {
      // The ranks end together: their clocks differ.
      *go_on.as<std::int64_t>() = std::chrono::steady_clock::now() < end ? 1 : 0;
      group.world().all_reduce(go_on, ReduceOp::min).wait();
      if (*go_on.as<std::int64_t>() == 0) break;
      if (must_throw != 0) throw std::runtime_error("rank " + rank + " was told to throw");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      group.world().all_reduce(gradient, ReduceOp::sum).wait();
      if (step == 3) note(folder, "step." + rank, "3");
    }
  } catch (const std::exception& error) {
    mine = outcome_of(error);
    group.abort({.outcome = mine,
                 .kind = "exception",
                 .origin_rank = group.rank(),
                 .what = error.what(),
                 .hint = {}});
  }
  const auto cause = group.abort_signal()->cause();
  const bool root_lost = cause && cause->kind == kLostRank && cause->origin_rank == 0;
  const Outcome all = group.leave(mine);
  const int code = static_cast<int>(all);
  note(folder, "exit." + rank, std::to_string(code));
  // Without rank 0 nobody is waited for, and mpirun kills the rest at the first end: this lets all
  // leave their notes. The trainer has nothing to write any more once it has left.
  if (root_lost) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (group.rank() == 0) note(folder, "result", std::to_string(code));
  std::_Exit(code);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: fault_probe FOLDER BACKEND SECONDS\n");
    return 78;
  }
  std::signal(SIGUSR1, [](int) { lockstep::must_throw = 1; });
  // As the trainer does: a launcher's SIGTERM after a lost peer is teardown, not a notice.
  std::signal(SIGTERM, [](int) {});
  try {
    return lockstep::run(argv[1], argv[2], std::chrono::seconds(std::atoi(argv[3])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    std::_Exit(static_cast<int>(lockstep::outcome_of(error)));
  }
}
