// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/attention_args.h"

namespace lockstep::fake {

/// What the bf16 kernels of attention compute, in plain loops: the same values are rounded to bf16
/// at the same places, the same tiles give the running maximum. Sums are f32 in another order.
void attention_forward_bf16(const cuda::AttentionForwardArgs& args);
/// The keys' and values' part of qkv_grad; the queries' part. Both need row_sums.
void attention_backward_keys_bf16(const cuda::AttentionBackwardArgs& args);
void attention_backward_queries_bf16(const cuda::AttentionBackwardArgs& args);

}  // namespace lockstep::fake
