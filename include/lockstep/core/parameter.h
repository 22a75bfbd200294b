// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep {

/// What the local part of a tensor is, along one axis of the mesh.
enum class PlacementKind : std::uint8_t {
  replicated,  // the same on every rank
  sharded,     // block `index` of `count` along `dim`
  partial,     // to be summed over the axis
  varying,     // different on every rank, with no global meaning
};

struct Placement {
  PlacementKind kind = PlacementKind::replicated;
  int dim = 0;
  int index = 0;
  int count = 1;
};

/// Where a backward pass writes a gradient.
struct GradientSlot {
  Tensor grad;       // the parameter's shape, f32
  bool add = false;  // false: overwrite what is there; true: add to it
};

/// A value and its gradient. Owned by its module, borrowed by reducer and optimizer; never moves.
///
/// A parameter belongs to the thread that runs the passes; only mark_ready may be called elsewhere.
class Parameter {
 public:
  /// `shape` is the local one. `tensor_axis` says what part of the whole it is.
  Parameter(Device device, std::string name, Shape shape, DType dtype = DType::f32,
            Placement tensor_axis = {});
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const noexcept { return name_; }  // "transformer.h.0.ln_1.weight"
  /// The value; whoever queues work that reads it calls this first. If the value is still on its
  /// way, what it waits for is queued on the stream of the passes.
  const Tensor& value() const {
    if (arrival_) std::exchange(arrival_, {})();
    return value_;
  }
  const Shape& shape() const noexcept { return value_.shape(); }
  std::int64_t size() const noexcept { return value_.size(); }
  const Placement& tensor_axis() const noexcept { return tensor_axis_; }

  /// The gradient as it is now.
  const Tensor& grad() const noexcept { return grad_; }

  /// Where the next contribution of this pass goes. The first call of a pass overwrites unless the
  /// pass was opened to add; later calls of the same pass (a tied weight) add.
  GradientSlot next_gradient();

  /// Opens a pass: contributions go to `grad` (f32, this shape), added to what is there or over it.
  void begin_pass(Tensor grad, bool add);

  /// Nothing more is added in this pass, once `written` is reached. Once a pass.
  void mark_ready(const Event& written);
  /// Whether any rank used it in the last step; what is not used is not updated. The reducer says
  /// so where unused parameters are allowed; else always true.
  bool is_used() const noexcept { return used_; }
  void set_used(bool used) noexcept { used_ = used; }

  /// `arrive` is called by the next value(), once: it queues what the value waits for. An empty
  /// function takes it away.
  void await_value(std::function<void()> arrive) { arrival_ = std::move(arrive); }

  /// At most one hook; an empty function takes it away.
  void on_ready(std::function<void(const Event& written)> hook);

 private:
  std::string name_;
  Tensor value_;
  Tensor grad_;
  Placement tensor_axis_;
  bool add_ = false;
  bool used_ = true;
  std::function<void(const Event&)> hook_;
  mutable std::function<void()> arrival_;
};

using Parameters = std::vector<Parameter*>;  // borrowed, in forward order

/// Where the parameters lie; the CPU if there are none.
Device device_of(const Parameters& parameters);

}  // namespace lockstep
