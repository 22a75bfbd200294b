// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"
#include "lockstep/core/stream.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::kernels {
struct UpdateGate;  // core/kernels.h
}

namespace lockstep::optim {

/// How a step uses the gradient sums: g · scale · clip, then the rule with `learning_rate`.
struct UpdateScale {
  float learning_rate = 0.0F;
  float scale = 1.0F;  // 1 / tokens
  float clip = 1.0F;   // clip_factor() of the global norm
  // Instead of `clip`, if given; closed, the update changes nothing. Must outlive the work.
  const kernels::UpdateGate* gate = nullptr;
};

/// A rule that turns gradients into updates. It borrows the parameters, which must outlive it.
/// Where a parameter is bf16 or f16, it keeps the master.
///
/// An update that is to be withheld (no tokens, a norm that is not finite) is simply not made: the
/// state and the count stay as they are. Where a gate withholds it, who learns that takes the count
/// back (set_updates). One thread.
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

  /// Binds the state tensors (StateKind::master, StateKind::m, StateKind::v), each under its
  /// parameter's name.
  void bind(StateDict& state);
  /// The masters become the values as they are now: after the caller has set these, as at the start
  /// of a run. (The constructor does it too.)
  void read_values();

 protected:
  explicit Optimizer(ParameterSlices parameters) : parameters_(std::move(parameters)) {}

 private:
  /// Changes the weights() of the slices that are updated. `t`: updates, this one included.
  virtual void update(Stream& stream, const UpdateScale& scale, std::int64_t t) = 0;
  /// Binds the state of this rule alone.
  virtual void bind_rule(StateDict& state) = 0;

  ParameterSlices parameters_;
  std::int64_t updates_ = 0;
};

}  // namespace lockstep::optim
