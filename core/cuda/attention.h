// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels.h"

namespace lockstep::kernels::cuda {

/// What the two products of attention are computed in. Softmax, sums and gradients are f32 in both.
enum class AttentionMath {
  f32,   // f32 products on CUDA cores
  bf16,  // queries, keys, values, probabilities and their gradients rounded to bf16, tensor cores
};

/// As in core/kernels.h. Heads of up to 128 columns; wider ones are a UsageError.
void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp);
void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math);

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad);
void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math);

}  // namespace lockstep::kernels::cuda
