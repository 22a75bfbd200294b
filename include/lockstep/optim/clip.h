// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/core/parameter.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/shards.h"

namespace lockstep::optim {

/// The size of a whole gradient.
struct GradientNorm {
  double of_sums = 0.0;              // √(Σ g²) over the arena's sums, before 1/tokens
  std::string non_finite_parameter;  // the first in forward order; empty: all gradients are finite

  bool finite() const noexcept { return non_finite_parameter.empty(); }
  /// The norm of the mean gradient: what a log calls grad_norm.
  double per_token(std::int64_t tokens) const noexcept {
    return tokens > 0 ? of_sums / static_cast<double>(tokens) : 0.0;
  }
};

/// What an update is to do with a norm.
struct ClipRule {
  double limit = 0.0;     // of the norm per token; 0: off
  double divisor = 1.0;   // of the sums: tokens, times the loss scale
  bool withhold = false;  // the update, whatever the norm: the loss was not finite
};

/// The L2 norm over the gradient arena.
///
/// Squares are f64, summed block by block and then in block order, so that large f32 values do not
/// overflow and the bits depend on the arena alone. A tied parameter has one place in the arena and
/// counts once.
class GlobalNorm {
 public:
  /// With `shards`, borrowed, each rank adds up its own shares.
  GlobalNorm(const Parameters& parameters, const BucketPlan& plan, Shards* shards = nullptr);
  ~GlobalNorm();  // waits for what was queued on the stream, which outlives it
  GlobalNorm(const GlobalNorm&) = delete;
  GlobalNorm& operator=(const GlobalNorm&) = delete;

  /// Queues the norm behind the reduced gradients, and with it gate(): an update that is queued
  /// next needs no word of the host. `arena` [plan.arena_elements] f32, its padding zero. Throws
  /// UsageError for another size. Collective with shards.
  void queue(Stream& stream, const Tensor& arena, const ClipRule& rule);
  /// For UpdateScale.
  const kernels::UpdateGate* gate() const noexcept;
  /// What was queued last, when the stream has done it.
  GradientNorm result() const;

  /// Both at once: the host waits.
  GradientNorm measure(Stream& stream, const Tensor& arena);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// min(1, limit / norm), rounded to f32, without an epsilon. 1 where `limit` is 0 (off) or the norm
/// is 0 or not finite (then no update is made at all).
float clip_factor(double norm, double limit) noexcept;

}  // namespace lockstep::optim
