// SPDX-License-Identifier: Apache-2.0
#include "core/kernels.h"
#include "lockstep/runtime/layers.h"

namespace lockstep::nn {

Mlp::Mlp(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t hidden,
         std::int64_t ffn)
    : stream_(&stream),
      workspace_(&workspace),
      c_fc_(stream, workspace, name + ".c_fc", hidden, ffn, BiasAdd::caller),
      c_proj_(stream, workspace, name + ".c_proj", ffn, hidden),
      after_gelu_(stream.device()) {}

Tensor Mlp::forward(const Tensor& x) {
  before_gelu_ = c_fc_.forward(x);
  const Tensor& after_gelu = after_gelu_.get(before_gelu_.shape());
  kernels::bias_gelu_forward(*stream_, c_fc_.bias().value(), before_gelu_, after_gelu);
  return c_proj_.forward(after_gelu);
}

void Mlp::backward(const Tensor& y_grad, const GradientSlot& x_grad) {
  const Tensor& hidden_grad = workspace_->wide.get(before_gelu_.shape());
  c_proj_.backward(y_grad, {.grad = hidden_grad});
  kernels::gelu_backward(*stream_, before_gelu_, hidden_grad, hidden_grad);
  c_fc_.backward(hidden_grad, x_grad);
}

void Mlp::visit(const std::function<void(Parameter&)>& visitor) {
  c_fc_.visit(visitor);
  c_proj_.visit(visitor);
}

}  // namespace lockstep::nn
