// SPDX-License-Identifier: Apache-2.0
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/layers.h"

namespace lockstep::nn {

Tensor operand(Stream& stream, const Tensor& x, Buffer& memory) {
  if (memory.dtype() == x.dtype()) return x;
  const Tensor& rounded = memory.get(x.shape());
  kernels::convert(stream, x, rounded);
  return rounded;
}

Linear::Linear(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t in,
               std::int64_t out, BiasAdd bias_add)
    : stream_(&stream),
      workspace_(&workspace),
      bias_add_(bias_add),
      weight_(stream.device(), name + ".weight", {in, out}, workspace.type),
      bias_(stream.device(), name + ".bias", {out}),
      rounded_x_(stream.device(), workspace.type),
      y_(stream.device()) {}

Tensor Linear::forward(const Tensor& x) {
  if (x.shape().empty() || x.shape().back() != weight_.shape()[0]) {
    throw UsageError("linear " + weight_.name() + " " + to_string(weight_.shape()) +
                         ": input of shape " + to_string(x.shape()),
                     "the input's last dimension is the weight's first");
  }
  x_ = operand(*stream_, x, rounded_x_);
  Shape shape = x.shape();
  shape.back() = weight_.shape()[1];
  const Tensor& y = y_.get(shape);
  kernels::gemm(*stream_, x_, weight_.value(), y);
  if (bias_add_ == BiasAdd::here) kernels::add_bias(*stream_, bias_.value(), y);
  return y;
}

void Linear::backward(const Tensor& y_grad, const GradientSlot& x_grad) {
  // The parameters first: their reduction can start while the input's gradient is computed.
  const GradientSlot bias = bias_.next_gradient();
  kernels::bias_backward(*stream_, y_grad, bias.grad, bias.add);
  bias_.mark_ready(stream_->record());

  const Tensor factor = operand(*stream_, y_grad, workspace_->rounded);
  const GradientSlot weight = weight_.next_gradient();
  kernels::gemm(*stream_, x_, factor, weight.grad, {.transpose_a = true, .add = weight.add});
  weight_.mark_ready(stream_->record());

  kernels::gemm(*stream_, factor, weight_.value(), x_grad.grad,
                {.transpose_b = true, .add = x_grad.add});
}

void Linear::visit(const std::function<void(Parameter&)>& visitor) {
  visitor(weight_);
  visitor(bias_);
}

}  // namespace lockstep::nn
