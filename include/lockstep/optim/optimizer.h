// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"
#include "lockstep/core/stream.h"

namespace lockstep::optim {

/// How a step uses the gradient sums: g · scale · clip, then the rule with `learning_rate`.
struct UpdateScale {
  float learning_rate = 0.0F;
  float scale = 1.0F;  // 1 / tokens
  float clip = 1.0F;   // clip_factor() of the global norm
};

/// A rule that turns gradients into updates. It borrows the parameters, which must outlive it.
///
/// An update that is to be withheld (no tokens, a norm that is not finite) is simply not made: the
/// state and the count stay as they are. One thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Queues one update of every parameter from its grad() as it is then, and counts it.
  void step(Stream& stream, const UpdateScale& scale);

  /// Updates made so far: t of the bias correction. To be saved and restored with the state.
  std::int64_t updates() const noexcept { return updates_; }
  /// Throws UsageError for a negative number.
  void set_updates(std::int64_t updates);

  /// Binds the state tensors (StateKind::m, StateKind::v), each under its parameter's name.
  virtual void bind(StateDict& state) = 0;

 protected:
  Optimizer() = default;

 private:
  /// `t`: updates, this one included.
  virtual void update(Stream& stream, const UpdateScale& scale, std::int64_t t) = 0;

  std::int64_t updates_ = 0;
};

}  // namespace lockstep::optim
