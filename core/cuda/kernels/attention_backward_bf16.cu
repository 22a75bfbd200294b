// SPDX-License-Identifier: Apache-2.0
// Attention backward on tensor cores: the two passes of attention_backward.cu with both factors of
// every product rounded to bf16. Probabilities and their gradients stay in registers: the pass over
// queries has keys as rows, Pᵀ = e^(K·Qᵀ − log_sum_exp), so that they are left factors in both.
#include "core/cuda/kernels/attention_mma.cuh"

namespace lockstep::cuda {
namespace {

// Columns of 8 that are computed at once. Half a tile leaves room for the gradients in registers.
constexpr int kChunkColumns = kTile / 2 / 8;
constexpr int kChunk = kChunkColumns * 8;

// Products of 16 own rows of two left tiles with a chunk of rows of two right tiles.
template <int kWidth>
__device__ __forceinline__ void multiply_heads(
    float (&scores)[kChunkColumns][4], float (&grads)[kChunkColumns][4], const std::uint16_t* left,
    const std::uint16_t* left_grads, const std::uint16_t* right, const std::uint16_t* right_grads) {
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    std::uint32_t rows[4];
    load_left<kWidth>(rows, left, k);
    multiply_rows<kWidth>(scores, rows, right, k);
    load_left<kWidth>(rows, left_grads, k);
    multiply_rows<kWidth>(grads, rows, right_grads, k);
  }
}

// A score and the gradient of its probability become the probability and the score's gradient.
__device__ __forceinline__ void softmax_backward(float& score, float& grad, bool sees,
                                                 float log_sum_exp, float row_sum) {
  score = sees ? expf(score - log_sum_exp) : 0.0F;
  grad = sees ? score * (grad - row_sum) : 0.0F;
}

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreadsBf16)
    attention_backward_keys_bf16(const AttentionBackwardArgs args) {
  constexpr int stride = kHeadStrideBf16<kWidth>;
  constexpr int tile = kTile * stride;
  auto* const keys = reinterpret_cast<std::uint16_t*>(shared_memory());
  std::uint16_t* const values = keys + tile;
  std::uint16_t* const queries = values + tile;
  std::uint16_t* const y_grads = queries + tile;
  auto* const log_sum_exps = reinterpret_cast<float*>(y_grads + tile);
  float* const row_sums = log_sum_exps + kTile;

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  // The first keys are seen by most queries and are started first.
  const int first = static_cast<int>(blockIdx.y) * kTile;
  const std::int64_t head_row = static_cast<std::int64_t>(head) * sizes.length;
  const auto query_rows = rows_of_head(args.qkv, sizes, head, 0, 3);
  const auto y_grad_rows = rows_of_head(args.y_grad, sizes, head, 0, 1);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 1, 3), sizes, first, 1.0F, keys);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 2, 3), sizes, first, 1.0F, values);
  const std::uint16_t* const own_keys = keys + first_warp_row() * stride;
  const std::uint16_t* const own_values = values + first_warp_row() * stride;

  float key_grads[kWidth / 8][4] = {};
  float value_grads[kWidth / 8][4] = {};
  for (int query = first; query < sizes.length; query += kTile) {
    load_tile<kWidth>(query_rows, sizes, query, sizes.scale, queries);
    load_tile<kWidth>(y_grad_rows, sizes, query, 1.0F, y_grads);
    if (threadIdx.x < kTile) {
      const int i = static_cast<int>(threadIdx.x);
      const bool there = query + i < sizes.length;
      log_sum_exps[i] = there ? args.log_sum_exp[head_row + query + i] : 0.0F;
      row_sums[i] = there ? args.row_sums[head_row + query + i] : 0.0F;
    }
    barrier();
#pragma unroll 1
    for (int chunk = 0; chunk < kTile; chunk += kChunk) {
      float scores[kChunkColumns][4] = {};
      float grads[kChunkColumns][4] = {};
      multiply_heads<kWidth>(scores, grads, own_keys, own_values, queries + chunk * stride,
                             y_grads + chunk * stride);
#pragma unroll
      for (int n = 0; n < kChunkColumns; ++n) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int column = chunk + n * 8 + own_column(part);
          const int key = first + first_warp_row() + own_row(part);
          const bool sees = query + column < sizes.length && key <= query + column;
          softmax_backward(scores[n][part], grads[n][part], sees, log_sum_exps[column],
                           row_sums[column]);
        }
      }
#pragma unroll
      for (int n = 0; n < kChunkColumns; n += 2) {
        const int row = (chunk + n * 8) * stride;
        std::uint32_t left[4];
        pack_left(left, scores[n], scores[n + 1]);
        add_weighted<kWidth>(value_grads, left, y_grads + row);
        pack_left(left, grads[n], grads[n + 1]);
        add_weighted<kWidth>(key_grads, left, queries + row);
      }
    }
    barrier();  // queries, gradients and sums have been used
  }
  const float ones[2] = {1.0F, 1.0F};  // the queries carried the scale
  store_rows<kWidth>(key_grads, sizes, first, ones, rows_of_head(args.qkv_grad, sizes, head, 1, 3));
  store_rows<kWidth>(value_grads, sizes, first, ones,
                     rows_of_head(args.qkv_grad, sizes, head, 2, 3));
}

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreadsBf16, kWidth <= 96 ? 4 : 3)
    attention_backward_queries_bf16(const AttentionBackwardArgs args) {
  constexpr int stride = kHeadStrideBf16<kWidth>;
  constexpr int tile = kTile * stride;
  auto* const queries = reinterpret_cast<std::uint16_t*>(shared_memory());
  std::uint16_t* const y_grads = queries + tile;
  std::uint16_t* const keys = y_grads + tile;
  std::uint16_t* const values = keys + tile;

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const auto key_rows = rows_of_head(args.qkv, sizes, head, 1, 3);
  const auto value_rows = rows_of_head(args.qkv, sizes, head, 2, 3);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 0, 3), sizes, first, sizes.scale, queries);
  load_tile<kWidth>(rows_of_head(args.y_grad, sizes, head, 0, 1), sizes, first, 1.0F, y_grads);
  const std::uint16_t* const own_queries = queries + first_warp_row() * stride;
  const std::uint16_t* const own_y_grads = y_grads + first_warp_row() * stride;

  float log_sum_exps[2];  // of the thread's two rows
  float row_sums[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = first + first_warp_row() + own_row(2 * r);
    const std::int64_t at = static_cast<std::int64_t>(head) * sizes.length + query;
    log_sum_exps[r] = query < sizes.length ? args.log_sum_exp[at] : 0.0F;
    row_sums[r] = query < sizes.length ? args.row_sums[at] : 0.0F;
  }
  float query_grads[kWidth / 8][4] = {};
  for (int key = 0; key <= first; key += kTile) {
    load_tile<kWidth>(key_rows, sizes, key, 1.0F, keys);
    load_tile<kWidth>(value_rows, sizes, key, 1.0F, values);
    barrier();
#pragma unroll 1
    for (int chunk = 0; chunk < kTile; chunk += kChunk) {
      float scores[kChunkColumns][4] = {};
      float grads[kChunkColumns][4] = {};
      multiply_heads<kWidth>(scores, grads, own_queries, own_y_grads, keys + chunk * stride,
                             values + chunk * stride);
#pragma unroll
      for (int n = 0; n < kChunkColumns; ++n) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int query = first + first_warp_row() + own_row(part);
          const bool sees = query < sizes.length && key + chunk + n * 8 + own_column(part) <= query;
          softmax_backward(scores[n][part], grads[n][part], sees, log_sum_exps[part / 2],
                           row_sums[part / 2]);
        }
      }
#pragma unroll
      for (int n = 0; n < kChunkColumns; n += 2) {
        std::uint32_t left[4];
        pack_left(left, grads[n], grads[n + 1]);
        add_weighted<kWidth>(query_grads, left, keys + (chunk + n * 8) * stride);
      }
    }
    barrier();  // keys and values have been used
  }
  const float factors[2] = {sizes.scale, sizes.scale};
  store_rows<kWidth>(query_grads, sizes, first, factors,
                     rows_of_head(args.qkv_grad, sizes, head, 0, 3));
}

}  // namespace

const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeysBf16 = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_backward_keys_bf16)};

const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueriesBf16 = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_backward_queries_bf16)};

}  // namespace lockstep::cuda
