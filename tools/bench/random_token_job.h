// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/reducer.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/shards.h"
#include "lockstep/runtime/gpt2.h"
#include "lockstep/runtime/loss.h"
#include "lockstep/runtime/samples.h"
#include "lockstep/runtime/train_options.h"

namespace lockstep::tools {

/// Seconds of one step on this rank.
struct StepTimes {
  double passes = 0.0;     // forward and backward of all own leaves, with what overlaps
  double reduce = 0.0;     // from the last backward until the sums are there
  double exposed = 0.0;    // of that and of compute, waiting for communication
  double optimizer = 0.0;  // norm, clip, update, and with zero = 1 the weights of others
};

/// A GPT-2 that trains on random tokens: the work of a step without data, logs and checkpoints.
class RandomTokenJob {
 public:
  explicit RandomTokenJob(const TrainOptions& options);

  /// Reduces over `data` from now on, in steps of `leaves` micro-batches in all, with a fresh
  /// optimizer. Collective.
  void use(Communicator& data, const ReducerOptions& reducer, std::int64_t leaves);
  /// Lets go of the communicator.
  void release() {
    finish_weights();
    shards_.reset();
    reducer_.reset();
  }
  const GradientReducer& reducer() const { return *reducer_; }
  /// Of the optimizer's state on this rank.
  std::int64_t optimizer_bytes();
  /// One step. Throws NumericError for a loss that is not finite.
  StepTimes step();
  Parameters parameters() { return model_.parameters(); }
  Device device() const { return compute_.device(); }
  /// weights_sha256 of the model as it is now.
  std::string weights();
  double loss() const noexcept { return loss_value_; }

 private:
  void finish_weights();

  TrainOptions options_;
  Stream compute_;
  std::vector<Batch> batches_;  // on the device, one a leaf
  nn::Gpt2 model_;
  nn::CrossEntropy loss_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<optim::Shards> shards_;  // with zero = 1
  std::unique_ptr<optim::AdamW> optimizer_;
  std::unique_ptr<optim::GlobalNorm> norm_;
  double loss_value_ = 0.0;
};

}  // namespace lockstep::tools
