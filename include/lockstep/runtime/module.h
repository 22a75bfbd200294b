// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::nn {

/// Memory that a module keeps between passes: it grows to the largest shape seen, so that a loop
/// over equal or smaller shapes allocates nothing.
class Buffer {
 public:
  explicit Buffer(Device device, DType dtype = DType::f32) : device_(device), dtype_(dtype) {}
  /// Memory of this shape, its contents unspecified. It stays valid while the handle lives, but the
  /// next get() may hand out the same bytes.
  const Tensor& get(const Shape& shape);
  DType dtype() const noexcept { return dtype_; }

 private:
  Device device_;
  DType dtype_;
  Tensor storage_;  // flat
  Tensor view_;     // of the shape asked for last
};

/// An owner of parameters. All passes are queued on the stream it was built with, which must
/// outlive it; they are called by one thread.
///
/// Passes are explicit, there is no tape: forward keeps what its backward needs, so one pass is in
/// flight. Backward marks each parameter ready once, as soon as its gradient is written.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Calls `visitor` for each parameter once, in the order in which forward uses them.
  virtual void visit(const std::function<void(Parameter&)>& visitor) = 0;
  /// The same as a list.
  Parameters parameters();
  /// Binds the values as StateKind::param, each under its name.
  void bind(StateDict& state);

 protected:
  Module() = default;
};

/// A language model: what a training loop needs to know of one.
class Model : public Module {
 public:
  /// tokens [B, T] i32 → logits [B·T, vocab], memory of the model until its next forward.
  virtual Tensor forward(const Tensor& tokens) = 0;
  /// The backward pass of the last forward. `logits_grad` [B·T, vocab] may be the logits' memory.
  /// Throws UsageError without a forward before it.
  virtual void backward(const Tensor& logits_grad) = 0;
};

}  // namespace lockstep::nn
