// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels.h"

namespace lockstep::kernels::cuda {

/// As in core/kernels.h. Heads of up to 128 columns; wider ones are a UsageError.
void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math);

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math);

}  // namespace lockstep::kernels::cuda
