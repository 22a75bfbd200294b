// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/core/config.h"
#include "lockstep/runtime/train_options.h"
#include "tools/command.h"

namespace lockstep::tools {

/// What a benchmark is told: its own keys, and for those that train a step the keys of `train`.
struct BenchOptions {
  Config own;
  std::optional<TrainOptions> train;
};

/// A benchmark. `run` is called on every rank; it checks what it computes and throws if that is
/// wrong, and prints lines of JSON on rank 0.
struct Bench {
  const char* name;
  const char* help;
  std::vector<ConfigKey> keys;
  bool trains;  // takes the keys of `train` too
  void (*run)(ProcessGroup& group, const BenchOptions& options);
};

Bench bench_allreduce();
Bench bench_checkpoint();
Bench bench_gemm();
Bench bench_overlap();
Bench bench_step();
Bench bench_store();

/// Seconds of `work` on the slowest rank; all ranks begin together. Collective.
double timed(ProcessGroup& group, const std::function<void()>& work);

/// {p10, median, p90} under `name`_p10, `name` and `name`_p90.
void add_spread(nlohmann::ordered_json& line, const std::string& name, std::vector<double> samples);
double median(std::vector<double> samples);

/// On rank 0, with how the job is made up in front.
void print_line(ProcessGroup& group, const char* bench, const nlohmann::ordered_json& line);

}  // namespace lockstep::tools
