// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn_frontend.h>

#include <cstdint>

#include "core/cuda/fused_attention.h"

namespace lockstep::cuda {

/// Names of the tensors of both graphs: thirds of qkv, y, log_sum_exp, and gradients.
using Uid = std::int64_t;
inline constexpr Uid kQ = 1;
inline constexpr Uid kK = 2;
inline constexpr Uid kV = 3;
inline constexpr Uid kY = 4;
inline constexpr Uid kLogSumExp = 5;
inline constexpr Uid kYGrad = 6;
inline constexpr Uid kQGrad = 7;
inline constexpr Uid kKGrad = 8;
inline constexpr Uid kVGrad = 9;

/// Write into an empty graph what cuDNN is to compute; to be built.
void describe_forward(cudnn_frontend::graph::Graph& graph, const AttentionShape& shape);
void describe_backward(cudnn_frontend::graph::Graph& graph, const AttentionShape& shape);

}  // namespace lockstep::cuda
