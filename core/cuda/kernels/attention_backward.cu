// SPDX-License-Identifier: Apache-2.0
// Attention backward in f32: Dao, FlashAttention-2, 2023, algorithm 2, in two passes, so that every
// sum is one thread's and no atomics are needed. With P = e^(S − log_sum_exp), S computed anew:
// dV = Pᵀ·dY, dP = dY·Vᵀ, dS = P ∘ (dP − D) where D = Σ dY ∘ Y a row, dQ = dS·K·scale,
// dK = dSᵀ·Q·scale.
#include "core/cuda/kernels/attention_tiles.cuh"

namespace lockstep::cuda {
namespace {

__global__ void __launch_bounds__(kRowSumsThreads)
    attention_row_sums(const AttentionBackwardArgs args) {
  constexpr int lanes = 32;
  const AttentionSizes& sizes = args.sizes;
  const std::int64_t warp =
      (static_cast<std::int64_t>(blockIdx.x) * kRowSumsThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // A whole warp leaves, or none of it.
  if (warp >= static_cast<std::int64_t>(sizes.batch) * sizes.heads * sizes.length) return;
  const int head = static_cast<int>(warp / sizes.length);
  const int row = static_cast<int>(warp % sizes.length);
  const float* y = rows_of_head(args.y, sizes, head, 0, 1).row(row);
  const float* y_grad = rows_of_head(args.y_grad, sizes, head, 0, 1).row(row);
  float sum = 0.0F;
  for (int c = lane; c < sizes.width; c += lanes) sum = fmaf(y[c], y_grad[c], sum);
  sum = sum_of<lanes>(sum);
  if (lane == 0) args.row_sums[warp] = sum;
}

// A block's scores become P and their gradients dS; both are zero where a query does not see a key.
__device__ __forceinline__ void softmax_backward(const AttentionBackwardArgs& args, int head,
                                                 int first_query, int first_key,
                                                 float (&scores)[kOwnRows][kOwnScores],
                                                 float (&grads)[kOwnRows][kOwnScores]) {
  const int length = args.sizes.length;
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int query = first_query + first_own_row() + i;
    const bool there = query < length;
    const std::int64_t at = static_cast<std::int64_t>(head) * length + query;
    const float log_sum_exp = there ? args.log_sum_exp[at] : 0.0F;
    const float row_sum = there ? args.row_sums[at] : 0.0F;
#pragma unroll
    for (int j = 0; j < kOwnScores; ++j) {
      const bool sees = there && first_key + across() + j * kAcross <= query;
      const float p = sees ? expf(scores[i][j] - log_sum_exp) : 0.0F;
      scores[i][j] = p;
      grads[i][j] = sees ? p * (grads[i][j] - row_sum) : 0.0F;
    }
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_backward_keys(const AttentionBackwardArgs args) {
  constexpr int tile = kTile * kHeadStride<kWidth>;
  auto* const keys = reinterpret_cast<float*>(shared_memory());
  float* const values = keys + tile;
  float* const queries = values + tile;
  float* const y_grads = queries + tile;
  float* const weights = y_grads + tile;  // Pᵀ, then dSᵀ

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  // The first keys are seen by most queries and are started first.
  const int first = static_cast<int>(blockIdx.y) * kTile;
  const auto query_rows = rows_of_head(args.qkv, sizes, head, 0, 3);
  const auto y_grad_rows = rows_of_head(args.y_grad, sizes, head, 0, 1);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 1, 3), sizes, first, 1.0F, keys);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 2, 3), sizes, first, 1.0F, values);

  float key_grads[kOwnRows][kOwnColumns<kWidth>] = {};
  float value_grads[kOwnRows][kOwnColumns<kWidth>] = {};
  for (int query = first; query < sizes.length; query += kTile) {
    load_tile<kWidth>(query_rows, sizes, query, sizes.scale, queries);
    load_tile<kWidth>(y_grad_rows, sizes, query, 1.0F, y_grads);
    barrier();
    float scores[kOwnRows][kOwnScores];
    float grads[kOwnRows][kOwnScores];
    multiply_heads<kWidth>(queries, keys, scores);
    multiply_heads<kWidth>(y_grads, values, grads);
    softmax_backward(args, head, query, first, scores, grads);
    store_transposed(scores, weights);
    barrier();
    add_weighted<kWidth>(weights, y_grads, value_grads);
    barrier();  // P has been used
    store_transposed(grads, weights);
    barrier();
    add_weighted<kWidth>(weights, queries, key_grads);
    barrier();  // dS and the queries have been used
  }
  const float ones[kOwnRows] = {1.0F, 1.0F, 1.0F, 1.0F};  // the queries carried the scale
  store_rows<kWidth>(key_grads, sizes, first, ones, rows_of_head(args.qkv_grad, sizes, head, 1, 3));
  store_rows<kWidth>(value_grads, sizes, first, ones,
                     rows_of_head(args.qkv_grad, sizes, head, 2, 3));
}

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads, kWidth <= 64 ? 2 : 1)
    attention_backward_queries(const AttentionBackwardArgs args) {
  constexpr int tile = kTile * kHeadStride<kWidth>;
  auto* const queries = reinterpret_cast<float*>(shared_memory());
  float* const y_grads = queries + tile;
  float* const keys = y_grads + tile;
  float* const values = keys + tile;
  float* const weights = values + tile;  // dS

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const auto key_rows = rows_of_head(args.qkv, sizes, head, 1, 3);
  const auto value_rows = rows_of_head(args.qkv, sizes, head, 2, 3);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 0, 3), sizes, first, sizes.scale, queries);
  load_tile<kWidth>(rows_of_head(args.y_grad, sizes, head, 0, 1), sizes, first, 1.0F, y_grads);

  float query_grads[kOwnRows][kOwnColumns<kWidth>] = {};
  for (int key = 0; key <= first; key += kTile) {
    load_tile<kWidth>(key_rows, sizes, key, 1.0F, keys);
    load_tile<kWidth>(value_rows, sizes, key, 1.0F, values);
    barrier();
    float scores[kOwnRows][kOwnScores];
    float grads[kOwnRows][kOwnScores];
    multiply_heads<kWidth>(queries, keys, scores);
    multiply_heads<kWidth>(y_grads, values, grads);
    softmax_backward(args, head, first, key, scores, grads);
    store_scores(grads, weights);
    barrier();
    add_weighted<kWidth>(weights, keys, query_grads);
    barrier();  // dS and the keys have been used
  }
  const float factors[kOwnRows] = {sizes.scale, sizes.scale, sizes.scale, sizes.scale};
  store_rows<kWidth>(query_grads, sizes, first, factors,
                     rows_of_head(args.qkv_grad, sizes, head, 0, 3));
}

}  // namespace

const Kernel<AttentionBackwardArgs> kAttentionRowSums = {
    "attention_row_sums", reinterpret_cast<const void*>(&attention_row_sums)};

const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeys = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_backward_keys)};

const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueries = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_backward_queries)};

}  // namespace lockstep::cuda
