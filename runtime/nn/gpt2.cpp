// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/gpt2.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/copy.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/core/rng.h"

namespace lockstep::nn {
namespace {

constexpr double kStd = 0.02;  // of the initial weights

DType checked_type(DType type) {
  if (is_weight_type(type)) return type;
  throw UsageError(std::string("gpt2: matrices of type ") + to_string(type),
                   "use f32, bf16 or f16");
}

}  // namespace

Gpt2::Gpt2(Stream& stream, const Gpt2Config& config, DType matrix_type)
    : stream_(&stream),
      config_(resolved(config)),
      workspace_(stream.device(), checked_type(matrix_type)),
      wte_(stream.device(), "transformer.wte.weight", {config_.vocab, config_.hidden}, matrix_type),
      wpe_(stream.device(), "transformer.wpe.weight", {config_.context, config_.hidden},
           matrix_type),
      ln_f_(stream, "transformer.ln_f", config_.hidden, config_.epsilon),
      embedded_(stream.device()),
      rounded_last_(stream.device(), matrix_type),
      logits_(stream.device()),
      grad_(stream.device()) {
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(stream, workspace_,
                                              "transformer.h." + std::to_string(i), config_.hidden,
                                              config_.heads, config_.ffn, config_.epsilon));
  }
}

void Gpt2::initialize(std::uint64_t seed) {
  stream_->synchronize();  // nobody reads the old values any more
  // Each block adds twice to the residual stream, so its variance stays that of one layer.
  const double residual_std = kStd / std::sqrt(2.0 * static_cast<double>(config_.layers));
  visit([&](Parameter& parameter) {
    std::vector<float> values(static_cast<std::size_t>(parameter.size()));
    const std::string& name = parameter.name();
    if (name.ends_with(".bias")) {
      std::fill(values.begin(), values.end(), 0.0F);
    } else if (name.find(".ln_") != std::string::npos) {
      std::fill(values.begin(), values.end(), 1.0F);
    } else {
      fill_normal(values, 0, seed, name, name.ends_with(".c_proj.weight") ? residual_std : kStd);
    }
    const Tensor& value = parameter.value();
    const Tensor rounded(Device{}, value.shape(), value.dtype());
    kernels::convert_elements(values.data(), DType::f32, rounded.data(), value.dtype(),
                              values.size());
    copy_now(rounded, value);
  });
}

Tensor Gpt2::forward(const Tensor& tokens) {
  const Shape& shape = tokens.shape();
  if (shape.size() != 2 || tokens.dtype() != DType::i32 || shape[0] < 1 || shape[1] < 1 ||
      shape[1] > config_.context) {
    throw UsageError(
        "gpt2: tokens of shape " + to_string(shape) + " " + to_string(tokens.dtype()),
        "they are [B, T] i32 with T from 1 to model.context = " + std::to_string(config_.context));
  }
  tokens_ = tokens;
  const Tensor& embedded = embedded_.get({shape[0], shape[1], config_.hidden});
  kernels::embedding_forward(*stream_, tokens, wte_.value(), wpe_.value(), embedded);
  Tensor x = embedded;
  for (const auto& block : blocks_) x = block->forward(x);
  last_ = operand(*stream_, ln_f_.forward(x), rounded_last_);
  const Tensor& logits = logits_.get({tokens.size(), config_.vocab});
  kernels::gemm(*stream_, last_, wte_.value(), logits, {.transpose_b = true});
  return logits;
}

void Gpt2::backward(const Tensor& logits_grad) {
  if (!tokens_.defined()) {
    throw UsageError("gpt2: backward without a forward before it",
                     "call forward once before each backward");
  }
  const Tensor tokens = std::exchange(tokens_, {});
  const Tensor& grad = grad_.get(last_.shape());
  const Tensor& last_grad = workspace_.norm.get(last_.shape());

  // The tied matrix: the head's part here, the embedding's at the end.
  const Tensor factor = operand(*stream_, logits_grad, workspace_.rounded);
  const GradientSlot head = wte_.next_gradient();
  kernels::gemm(*stream_, factor, last_, head.grad, {.transpose_a = true, .add = head.add});
  kernels::gemm(*stream_, factor, wte_.value(), last_grad);

  ln_f_.backward(last_grad, {.grad = grad});
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) (*block)->backward(grad);

  const GradientSlot token = wte_.next_gradient();
  const GradientSlot position = wpe_.next_gradient();
  kernels::embedding_backward(*stream_, tokens, grad, token.grad, token.add, position.grad,
                              position.add);
  const Event written = stream_->record();
  wpe_.mark_ready(written);
  wte_.mark_ready(written);
}

void Gpt2::visit(const std::function<void(Parameter&)>& visitor) {
  visitor(wte_);
  visitor(wpe_);
  for (const auto& block : blocks_) block->visit(visitor);
  ln_f_.visit(visitor);
}

}  // namespace lockstep::nn
