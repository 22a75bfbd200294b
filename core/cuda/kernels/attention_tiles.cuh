// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/kernels/attention_heads.cuh"

/// Tiles of attention in f32. A block is 16 × 16 threads. Thread (across, down) owns four rows,
/// 4·down + i, of any product of two tiles, and of these the columns across + 16·j of scores, or
/// own_column(c) of a head. So the threads of one row are 16 neighbouring lanes.
namespace lockstep::cuda {

constexpr int kAcross = 16;
constexpr int kOwnRows = kTile / (kAttentionThreads / kAcross);
constexpr int kOwnScores = kTile / kAcross;
constexpr int kScoreStride = kTile + kFloatPadding;
template <int kWidth>
constexpr int kHeadStride = kWidth + kFloatPadding;
static_assert(kOwnRows == 4 && kOwnScores == 4);

__device__ __forceinline__ int across() { return static_cast<int>(threadIdx.x) % kAcross; }
__device__ __forceinline__ int first_own_row() {
  return static_cast<int>(threadIdx.x) / kAcross * kOwnRows;
}

/// Neighbouring columns that a thread owns: as wide a vector as divides its share.
template <int kWidth>
constexpr int kVector = kWidth % 64 == 0 ? 4 : 2;
template <int kWidth>
constexpr int kOwnColumns = kWidth / kAcross;
template <int kWidth>
__device__ __forceinline__ int own_column(int c) {
  constexpr int vector = kVector<kWidth>;
  return c / vector * (vector * kAcross) + across() * vector + c % vector;
}

/// Rows [first, first + kTile), `factor` times, to tile [kTile, padded].
template <int kWidth>
__device__ __forceinline__ void load_tile(const HeadRows<const float>& x,
                                          const AttentionSizes& sizes, int first, float factor,
                                          float* tile) {
  constexpr int fours = kWidth / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * fours; i += kAttentionThreads) {
    const int row = i / fours;
    const int column = i % fours * 4;
    *reinterpret_cast<float4*>(tile + row * kHeadStride<kWidth> + column) =
        read_four(x, sizes, first + row, column, factor);
  }
}

__device__ __forceinline__ float4 four_at(const float* shared) {
  return *reinterpret_cast<const float4*>(shared);
}

/// scores = rows · columnsᵀ, both tiles of heads.
template <int kWidth>
__device__ __forceinline__ void multiply_heads(const float* rows, const float* columns,
                                               float (&scores)[kOwnRows][kOwnScores]) {
  constexpr int stride = kHeadStride<kWidth>;
  const float* a = rows + first_own_row() * stride;
  const float* b = columns + across() * stride;
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
    for (int j = 0; j < kOwnScores; ++j) scores[i][j] = 0.0F;
  }
#pragma unroll 2
  for (int k = 0; k < kWidth; k += 4) {
    float4 left[kOwnRows];
    float4 right[kOwnScores];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) left[i] = four_at(a + i * stride + k);
#pragma unroll
    for (int j = 0; j < kOwnScores; ++j) right[j] = four_at(b + j * kAcross * stride + k);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnScores; ++j) {
        scores[i][j] = fmaf(left[i].x, right[j].x, scores[i][j]);
        scores[i][j] = fmaf(left[i].y, right[j].y, scores[i][j]);
        scores[i][j] = fmaf(left[i].z, right[j].z, scores[i][j]);
        scores[i][j] = fmaf(left[i].w, right[j].w, scores[i][j]);
      }
    }
  }
}

/// The own columns of one row of a head.
template <int kWidth>
__device__ __forceinline__ void read_own(const float* row, float (&own)[kOwnColumns<kWidth>]) {
  constexpr int vector = kVector<kWidth>;
#pragma unroll
  for (int c = 0; c < kOwnColumns<kWidth>; c += vector) {
    if constexpr (vector == 4) {
      const float4 four = four_at(row + own_column<kWidth>(c));
      own[c] = four.x;
      own[c + 1] = four.y;
      own[c + 2] = four.z;
      own[c + 3] = four.w;
    } else {
      const float2 two = *reinterpret_cast<const float2*>(row + own_column<kWidth>(c));
      own[c] = two.x;
      own[c + 1] = two.y;
    }
  }
}

/// sums += weights [kTile, kTile] · values, a tile of a head.
template <int kWidth>
__device__ __forceinline__ void add_weighted(const float* weights, const float* values,
                                             float (&sums)[kOwnRows][kOwnColumns<kWidth>]) {
  constexpr int columns = kOwnColumns<kWidth>;
  const float* a = weights + first_own_row() * kScoreStride;
#pragma unroll 2
  for (int k = 0; k < kTile; k += 4) {
    float4 left[kOwnRows];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) left[i] = four_at(a + i * kScoreStride + k);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      float right[columns];
      read_own<kWidth>(values + (k + step) * kHeadStride<kWidth>, right);
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        const float weight = step == 0   ? left[i].x
                             : step == 1 ? left[i].y
                             : step == 2 ? left[i].z
                                         : left[i].w;
#pragma unroll
        for (int c = 0; c < columns; ++c) sums[i][c] = fmaf(weight, right[c], sums[i][c]);
      }
    }
  }
}

/// Own scores to scores [kTile, kTile].
__device__ __forceinline__ void store_scores(const float (&own)[kOwnRows][kOwnScores],
                                             float* scores) {
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
    for (int j = 0; j < kOwnScores; ++j) {
      scores[(first_own_row() + i) * kScoreStride + across() + j * kAcross] = own[i][j];
    }
  }
}
/// The same, transposed.
__device__ __forceinline__ void store_transposed(const float (&own)[kOwnRows][kOwnScores],
                                                 float* scores) {
#pragma unroll
  for (int j = 0; j < kOwnScores; ++j) {
    *reinterpret_cast<float4*>(scores + (across() + j * kAcross) * kScoreStride +
                               first_own_row()) = {own[0][j], own[1][j], own[2][j], own[3][j]};
  }
}

/// Own sums, `factor` times, to rows [first, first + kTile).
template <int kWidth>
__device__ __forceinline__ void store_rows(const float (&sums)[kOwnRows][kOwnColumns<kWidth>],
                                           const AttentionSizes& sizes, int first,
                                           const float (&factors)[kOwnRows],
                                           const HeadRows<float>& to) {
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int row = first + first_own_row() + i;
    if (row >= sizes.length) continue;
#pragma unroll
    for (int c = 0; c < kOwnColumns<kWidth>; ++c) {
      const int column = own_column<kWidth>(c);
      if (column < sizes.width) to.row(row)[column] = sums[i][c] * factors[i];
    }
  }
}

}  // namespace lockstep::cuda
