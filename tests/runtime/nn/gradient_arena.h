// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/core/parameter.h"

namespace lockstep::nn {

/// Gradients of a module in one arena, each on a block, as a reducer of one rank lays them out.
class GradientArena {
 public:
  explicit GradientArena(Parameters parameters, Device device = {})
      : parameters_(std::move(parameters)) {
    plan_.entries.resize(parameters_.size());
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      const std::int64_t size = parameters_[i]->size();
      plan_.entries[i] = {.offset = plan_.arena_elements, .size = size};
      plan_.arena_elements += (size + kBlockElements - 1) / kBlockElements * kBlockElements;
    }
    memory_ = Tensor::zeros(device, {plan_.arena_elements}, DType::f32);
  }

  /// Opens a pass of every parameter.
  void open_pass(bool add) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const ArenaEntry& entry = plan_.entries[i];
      parameters_[i]->begin_pass(memory_.rows(entry.offset, entry.offset + entry.size), add);
    }
  }

  const Parameters& parameters() const { return parameters_; }
  const BucketPlan& plan() const { return plan_; }
  const Tensor& memory() const { return memory_; }

 private:
  Parameters parameters_;
  BucketPlan plan_;
  Tensor memory_;
};

}  // namespace lockstep::nn
