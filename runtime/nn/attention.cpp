// SPDX-License-Identifier: Apache-2.0
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/layers.h"

namespace lockstep::nn {
namespace {

// In bf16 the matrices' other products read rounded factors too.
kernels::AttentionMath math_of(const Workspace& workspace) {
  return workspace.type == DType::bf16 ? kernels::AttentionMath::bf16 : kernels::AttentionMath::f32;
}

}  // namespace

Attention::Attention(Stream& stream, Workspace& workspace, const std::string& name,
                     std::int64_t hidden, int heads)
    : stream_(&stream),
      workspace_(&workspace),
      heads_(heads),
      c_attn_(stream, workspace, name + ".c_attn", hidden, 3 * hidden),
      c_proj_(stream, workspace, name + ".c_proj", hidden, hidden),
      context_(stream.device()),
      log_sum_exp_(stream.device()) {
  if (heads <= 0 || hidden % heads != 0) {
    throw ConfigError("attention " + name + ": model.heads = " + std::to_string(heads) +
                          " does not divide model.hidden = " + std::to_string(hidden),
                      "every head has hidden / heads columns");
  }
}

Tensor Attention::forward(const Tensor& x) {
  if (x.shape().size() != 3) {
    throw UsageError("attention: input of shape " + to_string(x.shape()), "it takes [B, T, C]");
  }
  qkv_ = c_attn_.forward(x);
  const Tensor& context = context_.get(x.shape());
  kernels::attention_forward(*stream_, qkv_, heads_, context,
                             log_sum_exp_.get({x.dim(0), heads_, x.dim(1)}), math_of(*workspace_));
  return c_proj_.forward(context);
}

void Attention::backward(const Tensor& y_grad, const GradientSlot& x_grad) {
  const Shape& shape = y_grad.shape();  // [B, T, C]
  const Tensor& context = context_.get(shape);
  const Tensor& context_grad = workspace_->narrow.get(shape);
  c_proj_.backward(y_grad, {.grad = context_grad});

  const Tensor& qkv_grad = workspace_->wide.get(qkv_.shape());
  kernels::attention_backward(*stream_, qkv_, context, context_grad,
                              log_sum_exp_.get({shape.at(0), heads_, shape.at(1)}), heads_,
                              qkv_grad, math_of(*workspace_));
  c_attn_.backward(qkv_grad, x_grad);
}

void Attention::visit(const std::function<void(Parameter&)>& visitor) {
  c_attn_.visit(visitor);
  c_proj_.visit(visitor);
}

}  // namespace lockstep::nn
