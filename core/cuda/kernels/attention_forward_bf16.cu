// SPDX-License-Identifier: Apache-2.0
// Attention forward on tensor cores: the algorithm of attention_forward.cu with queries, keys,
// values and probabilities rounded to bf16. Scores and probabilities stay in registers (Dao,
// FlashAttention-2, 2023, section 3.3: each warp has rows of its own).
#include "core/cuda/kernels/attention_mma.cuh"

namespace lockstep::cuda {
namespace {

template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreadsBf16)
    attention_forward_bf16(const AttentionForwardArgs args) {
  constexpr int tile = kTile * kHeadStrideBf16<kWidth>;
  constexpr int score_columns = kTile / 8;
  auto* const queries = reinterpret_cast<std::uint16_t*>(shared_memory());
  std::uint16_t* const keys = queries + tile;
  std::uint16_t* const values = keys + tile;

  const AttentionSizes& sizes = args.sizes;
  const int head = static_cast<int>(blockIdx.x);
  // The tiles that see most keys are started first.
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const auto key_rows = rows_of_head(args.qkv, sizes, head, 1, 3);
  const auto value_rows = rows_of_head(args.qkv, sizes, head, 2, 3);
  load_tile<kWidth>(rows_of_head(args.qkv, sizes, head, 0, 3), sizes, first, sizes.scale, queries);
  const std::uint16_t* const own_queries = queries + first_warp_row() * kHeadStrideBf16<kWidth>;

  float y[kWidth / 8][4] = {};
  float tops[2] = {-INFINITY, -INFINITY};  // the largest scores so far of the thread's two rows
  float sums[2] = {0.0F, 0.0F};            // Σ e^(score − top) over this thread's keys
  for (int key = 0; key <= first; key += kTile) {
    load_tile<kWidth>(key_rows, sizes, key, 1.0F, keys);
    load_tile<kWidth>(value_rows, sizes, key, 1.0F, values);
    barrier();
    float scores[score_columns][4] = {};
#pragma unroll
    for (int k = 0; k < kWidth; k += 16) {
      std::uint32_t left[4];
      load_left<kWidth>(left, own_queries, k);
      multiply_rows<kWidth>(scores, left, keys, k);
    }
    if (key == first) {  // all earlier keys are seen by every query of the tile
#pragma unroll
      for (int n = 0; n < score_columns; ++n) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          if (n * 8 + own_column(part) > first_warp_row() + own_row(part)) {
            scores[n][part] = -INFINITY;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = tops[r];
#pragma unroll
      for (int n = 0; n < score_columns; ++n) {
        top = fmaxf(top, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      }
      top = largest_of<kRowLanes>(top);
      const float fade = expf(tops[r] - top);
      tops[r] = top;
      sums[r] *= fade;
#pragma unroll
      for (int n = 0; n < score_columns; ++n) {
#pragma unroll
        for (int part = 2 * r; part < 2 * r + 2; ++part) {
          scores[n][part] = expf(scores[n][part] - top);
          sums[r] += scores[n][part];
        }
      }
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        y[n][2 * r] *= fade;
        y[n][2 * r + 1] *= fade;
      }
    }
#pragma unroll
    for (int n = 0; n < score_columns; n += 2) {
      std::uint32_t left[4];
      pack_left(left, scores[n], scores[n + 1]);
      add_weighted<kWidth>(y, left, values + n * 8 * kHeadStrideBf16<kWidth>);
    }
    barrier();  // keys and values have been used
  }

  float factors[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = sum_of<kRowLanes>(sums[r]);
    factors[r] = 1.0F / sum;
    const int query = first + first_warp_row() + own_row(2 * r);
    if (lane() % 4 == 0 && query < sizes.length) {
      args.log_sum_exp[static_cast<std::int64_t>(head) * sizes.length + query] =
          tops[r] + logf(sum);
    }
  }
  store_rows<kWidth>(y, sizes, first, factors, rows_of_head(args.y, sizes, head, 0, 1));
}

}  // namespace

const AttentionKernels<AttentionForwardArgs> kAttentionForwardBf16 = {
    LOCKSTEP_KERNELS_BY_WIDTH(attention_forward_bf16)};

}  // namespace lockstep::cuda
