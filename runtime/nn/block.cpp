// SPDX-License-Identifier: Apache-2.0
#include "core/kernels.h"
#include "lockstep/runtime/layers.h"

namespace lockstep::nn {

Block::Block(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t hidden,
             int heads, std::int64_t ffn, float epsilon)
    : stream_(&stream),
      workspace_(&workspace),
      ln_1_(stream, name + ".ln_1", hidden, epsilon),
      attn_(stream, workspace, name + ".attn", hidden, heads),
      ln_2_(stream, name + ".ln_2", hidden, epsilon),
      mlp_(stream, workspace, name + ".mlp", hidden, ffn) {}

Tensor Block::forward(const Tensor& x) {
  const Tensor h = attn_.forward(ln_1_.forward(x));
  kernels::add(*stream_, x, h);
  Tensor y = mlp_.forward(ln_2_.forward(h));
  kernels::add(*stream_, h, y);
  return y;
}

void Block::backward(const Tensor& grad) {
  const Tensor& norm_grad = workspace_->norm.get(grad.shape());
  mlp_.backward(grad, {.grad = norm_grad});
  ln_2_.backward(norm_grad, {.grad = grad, .add = true});
  attn_.backward(grad, {.grad = norm_grad});
  ln_1_.backward(norm_grad, {.grad = grad, .add = true});
}

void Block::visit(const std::function<void(Parameter&)>& visitor) {
  ln_1_.visit(visitor);
  attn_.visit(visitor);
  ln_2_.visit(visitor);
  mlp_.visit(visitor);
}

}  // namespace lockstep::nn
