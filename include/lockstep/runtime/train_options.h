// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/collectives/reducer.h"
#include "lockstep/core/config.h"
#include "lockstep/core/device.h"
#include "lockstep/core/tensor.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/moments.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/checkpoint.h"
#include "lockstep/runtime/gpt2.h"

namespace lockstep {

/// What `lockstep train` does, checked and without contradictions.
struct TrainOptions {
  nn::Gpt2Config model;
  std::string data_source;
  std::string data_eval;
  std::uint64_t data_seed = 0;
  std::int64_t global_batch = 16;  // sequences
  std::int64_t micro_batch = 4;    // sequences
  int mesh_data = 0;               // 0: all ranks
  std::string optimizer = "adamw";
  optim::MomentOptions moments;  // of adamw, adam and lamb
  optim::SgdOptions sgd;
  double clip = 1.0;  // 0: off
  optim::ScheduleOptions schedule;
  bool schedule_total_given = false;  // else `steps` of the first start counts
  float smoothing = 0.0F;
  DType precision = DType::f32;        // of matrices, and of what their products read
  optim::LossScaleOptions loss_scale;  // with f16
  ReducerOptions reducer;
  int zero = 0;  // 1: each data-parallel rank keeps optimizer state for its share alone
  std::int64_t replica_check = 100;  // steps; 0: at the start only
  Device device;
  bool device_of_rank = false;  // the index is the rank's number on its host
  GroupOptions group;
  std::filesystem::path run;
  std::string store;
  ResumePolicy resume = ResumePolicy::automatic;
  std::int64_t checkpoint_every = 100;    // steps; 0: at the end only
  bool checkpoint_every_auto = false;     // chosen in the run, from what saves cost
  double checkpoint_mtbf = 7200.0;        // seconds between failures of the whole job
  double checkpoint_every_seconds = 0.0;  // of wall time; 0: steps alone count
  std::int64_t checkpoint_keep = 3;
  std::int64_t checkpoint_keep_best = 0;
  bool checkpoint_async = true;
  std::int64_t checkpoint_max_failures = 3;  // in a row, at least 1
  std::int64_t eval_every = 100;             // steps; 0: never
  std::int64_t eval_batches = 4;
  std::int64_t steps = 1000;  // absolute
  std::optional<std::int64_t> pause_at;
  std::uint64_t seed = 0;
  std::int64_t log_every = 1;  // steps
  std::string trace;           // a file, `.RANK` is appended; empty: none
  bool allow_new_bits = false;

  /// V: the micro-batches of the global batch.
  std::int64_t leaves() const noexcept { return global_batch / micro_batch; }
};

/// Every key of `lockstep train`.
std::vector<ConfigKey> train_keys();

/// Flags (with --config FILE), LOCKSTEP_* variables and defaults, a preset expanded. `arguments`
/// without program and command. Throws ConfigError.
Config read_train_config(const std::vector<std::string>& arguments);

/// Checks values against one another and against what this build can do. Throws ConfigError.
TrainOptions train_options(const Config& config);

/// Keys and values that must be the same on every rank.
std::vector<std::pair<std::string, std::string>> keys_to_match(const Config& config);

/// Keys and values that a resume may change and that change what is learnt.
std::map<std::string, std::string> keys_to_tell(const Config& config);

}  // namespace lockstep
