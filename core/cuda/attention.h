// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/fused_attention.h"
#include "core/kernels.h"

namespace lockstep::kernels::cuda {

/// As in core/kernels.h. In bf16 by the library that the stream has chosen (AttentionChoice), else
/// by our own kernels, which have heads of up to 128 columns; wider ones are a UsageError.
void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math);

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math);

/// The same by our own kernels.
void own_attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                           const Tensor& log_sum_exp, AttentionMath math);
void own_attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y,
                            const Tensor& y_grad, const Tensor& log_sum_exp, int heads,
                            const Tensor& qkv_grad, AttentionMath math);

/// The same by a library: the f32 tensors are rounded to bf16, and its results widened.
void attention_forward_by(lockstep::cuda::FusedAttention& library, Stream& stream,
                          const Tensor& qkv, int heads, const Tensor& y, const Tensor& log_sum_exp);
void attention_backward_by(lockstep::cuda::FusedAttention& library, Stream& stream,
                           const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                           const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad);

}  // namespace lockstep::kernels::cuda
