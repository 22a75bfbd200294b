// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/core/config.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/preemption.h"
#include "lockstep/runtime/train_options.h"

namespace lockstep {

/// How Trainer::run ended without an exception.
struct TrainEnd {
  Outcome outcome = Outcome::finished;
  std::string reason;
  std::int64_t step = 0;
  std::string weights_sha256;  // on rank 0
};

/// Trains a model over all ranks of a job, from its newest commit to `options.steps`.
///
/// It owns the run folder, the data, the model, the reducer, the optimizer and the checkpoints, and
/// uses only public calls of them. One thread; every call is collective.
class Trainer {
 public:
  /// Everything before the first step: compares the ranks, reads the data, builds the model, claims
  /// the run and loads its newest commit. `signals` may be null. Throws on every rank or on none.
  Trainer(ProcessGroup& group, TrainOptions options, const Config& config, SignalWatch* signals);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains until `steps`, `pause_at` or a notice; then saves. Throws on every rank or on none,
  /// except when a rank is lost. A notice that insists while that save is made ends the process, as
  /// end_job() does (76).
  TrainEnd run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The whole of `lockstep train`: options, process group, training, result and cause files, exit
/// rendezvous. `arguments` without program and command. Ends the process as run_job() does.
[[noreturn]] void train(const std::vector<std::string>& arguments);

}  // namespace lockstep
