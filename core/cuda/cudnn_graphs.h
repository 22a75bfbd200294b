// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn_frontend.h>

#include <cstdint>

#include "core/cuda/fused_attention.h"

namespace lockstep::cuda {

/// Names of the tensors of both graphs: thirds of qkv, y, log_sum_exp, and gradients.
enum Uid : std::int64_t { kQ = 1, kK, kV, kY, kLogSumExp, kYGrad, kQGrad, kKGrad, kVGrad };

/// Write into an empty graph what cuDNN is to compute; to be built.
void describe_forward(cudnn_frontend::graph::Graph& graph, const AttentionShape& shape);
void describe_backward(cudnn_frontend::graph::Graph& graph, const AttentionShape& shape);

}  // namespace lockstep::cuda
