// SPDX-License-Identifier: Apache-2.0
// Attention forward in f32: Dao, FlashAttention-2, 2023, algorithm 1, causal. A block holds a tile
// of queries, walks over the keys up to them and keeps of each query the largest score, the sum of
// exponentials and the weighted values so far (online softmax: Milakov & Gimelshein 2018).
#include "core/cuda/kernels/attention_tiles.cuh"

namespace lockstep::cuda {
namespace {

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward(const AttentionForwardArgs args) {
  constexpr int tile = kTile * kHeadStride<kWidth>;
  auto* const queries = reinterpret_cast<float*>(shared_memory());
  float* const keys = queries + tile;  // then the values
  float* const scores = keys + tile;

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  // The tiles that see most keys are started first.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const auto key_rows = rows_of_head(args.qkv, sizes, head, 1, 3);
  const auto value_rows = rows_of_head(args.qkv, sizes, head, 2, 3);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 0, 3), sizes, first, sizes.scale, queries);

  float y[kOwnRows][kOwnColumns<kWidth>] = {};
  float tops[kOwnRows];  // the row's largest score so far
  float sums[kOwnRows];  // Σ e^(score − top) over this thread's keys
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    tops[i] = -INFINITY;
    sums[i] = 0.0F;
  }
  for (int key = 0; key <= first; key += kTile) {
    load_tile<kWidth>(key_rows, sizes, key, 1.0F, keys);
    barrier();
    float own[kOwnRows][kOwnScores];
    multiply_heads<kWidth>(queries, keys, own);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const int query = first + first_own_row() + i;
      float top = tops[i];
#pragma unroll
      for (int j = 0; j < kOwnScores; ++j) {
        // Keys behind the sequence stand behind all its queries.
        if (key + across() + j * kAcross > query) own[i][j] = -INFINITY;
        top = fmaxf(top, own[i][j]);
      }
      top = largest_of<kAcross>(top);
      const float fade = expf(tops[i] - top);
      tops[i] = top;
      sums[i] *= fade;
#pragma unroll
      for (int j = 0; j < kOwnScores; ++j) {
        own[i][j] = expf(own[i][j] - top);
        sums[i] += own[i][j];
      }
#pragma unroll
      for (int c = 0; c < kOwnColumns<kWidth>; ++c) y[i][c] *= fade;
    }
    store_scores(own, scores);
    barrier();  // the keys have been used
    load_tile<kWidth>(value_rows, sizes, key, 1.0F, keys);
    barrier();
    add_weighted<kWidth>(scores, keys, y);
    barrier();  // the values have been used
  }

  float factors[kOwnRows];
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int query = first + first_own_row() + i;
    const float sum = sum_of<kAcross>(sums[i]);
    factors[i] = 1.0F / sum;
    if (across() == 0 && query < sizes.length) {
      args.log_sum_exp[static_cast<std::int64_t>(head) * sizes.length + query] =
          tops[i] + logf(sum);
    }
  }
  store_rows<kWidth>(y, sizes, first, factors, rows_of_head(args.y, sizes, head, 0, 1));
}

}  // namespace

const AttentionKernels<AttentionForwardArgs> kAttentionForward = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_forward)};

}  // namespace lockstep::cuda
