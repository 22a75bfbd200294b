// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda/kernels/attention_heads.cuh"

/// Tiles of attention in bf16 on tensor cores, with f32 sums. A block is four warps; a warp owns 16
/// rows of any product of two tiles. With g = lane / 4 and t = lane % 4 a thread owns rows g and
/// g + 8 of these 16 and, of each 8 columns, 2t and 2t + 1: a product's sums are float[4] for each
/// 8 columns, as multiply_add() in device.cuh says. So the threads of one row are 4 neighbouring
/// lanes, and sums, rounded, are the left factor of the next product without leaving registers.
namespace lockstep::cuda {

constexpr int kRowLanes = 4;
constexpr int kWarpRows = kTile / (kAttentionThreadsBf16 / 32);
static_assert(kWarpRows == 16);
template <int kWidth>
constexpr int kHeadStrideBf16 = kWidth + kBf16Padding;

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int first_warp_row() {
  return static_cast<int>(threadIdx.x) / 32 * kWarpRows;
}
/// Of the warp's rows, that of a thread's sums[part], and their column of the 8.
__device__ __forceinline__ int own_row(int part) { return lane() / 4 + part / 2 * 8; }
__device__ __forceinline__ int own_column(int part) { return lane() % 4 * 2 + part % 2; }

/// Rows [first, first + kTile), `factor` times, to tile [kTile, padded].
template <int kWidth>
__device__ __forceinline__ void load_tile(const HeadRows<const float>& x,
                                          const AttentionSizes& sizes, int first, float factor,
                                          std::uint16_t* tile) {
  constexpr int fours = kWidth / 4;
  static_assert(kTile * fours % kAttentionThreadsBf16 == 0);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTile * fours; i += kAttentionThreadsBf16) {
    const int row = i / fours;
    const int column = i % fours * 4;
    const float4 four = read_four(x, sizes, first + row, column, factor);
    *reinterpret_cast<uint2*>(tile + row * kHeadStrideBf16<kWidth> + column) = {
        pack_bf16(four.x, four.y), pack_bf16(four.z, four.w)};
  }
}

/// 16 rows of a left factor at columns [column, column + 16).
template <int kWidth>
__device__ __forceinline__ void load_left(std::uint32_t (&left)[4], const std::uint16_t* rows,
                                          int column) {
  const int row = lane() % 16;
  load_matrices(left, rows + row * kHeadStrideBf16<kWidth> + column + lane() / 16 * 8);
}

/// 16 columns of a right factor whose columns are rows of a tile, at inner [inner, inner + 16):
/// registers 0 and 1 are of the first 8 columns, 2 and 3 of the others.
template <int kWidth>
__device__ __forceinline__ void load_right_rows(std::uint32_t (&right)[4],
                                                const std::uint16_t* rows, int inner) {
  const int row = lane() / 16 * 8 + lane() % 8;
  load_matrices(right, rows + row * kHeadStrideBf16<kWidth> + inner + lane() / 8 % 2 * 8);
}

/// The same of a right factor whose columns are those of a tile, [column, column + 16), and whose
/// inner dimension is 16 rows of it.
template <int kWidth>
__device__ __forceinline__ void load_right_columns(std::uint32_t (&right)[4],
                                                   const std::uint16_t* rows, int column) {
  const int row = lane() % 16;
  load_transposed(right, rows + row * kHeadStrideBf16<kWidth> + column + lane() / 16 * 8);
}

/// Rounded sums [16, 16] of two neighbouring columns of 8, as a left factor.
__device__ __forceinline__ void pack_left(std::uint32_t (&left)[4], const float (&first)[4],
                                          const float (&second)[4]) {
  left[0] = pack_bf16(first[0], first[1]);
  left[1] = pack_bf16(first[2], first[3]);
  left[2] = pack_bf16(second[0], second[1]);
  left[3] = pack_bf16(second[2], second[3]);
}

/// scores [16, 8 · kColumns] += left [16, 16] · rowsᵀ at inner [inner, inner + 16).
template <int kWidth, int kColumns>
__device__ __forceinline__ void multiply_rows(float (&scores)[kColumns][4],
                                              const std::uint32_t (&left)[4],
                                              const std::uint16_t* rows, int inner) {
#pragma unroll
  for (int n = 0; n < kColumns; n += 2) {
    std::uint32_t right[4];
    load_right_rows<kWidth>(right, rows + n * 8 * kHeadStrideBf16<kWidth>, inner);
    multiply_add(scores[n], left, right[0], right[1]);
    multiply_add(scores[n + 1], left, right[2], right[3]);
  }
}

/// sums [16, kWidth] += left [16, 16] · rows [16, kWidth].
template <int kWidth>
__device__ __forceinline__ void add_weighted(float (&sums)[kWidth / 8][4],
                                             const std::uint32_t (&left)[4],
                                             const std::uint16_t* rows) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    std::uint32_t right[4];
    load_right_columns<kWidth>(right, rows, n * 8);
    multiply_add(sums[n], left, right[0], right[1]);
    multiply_add(sums[n + 1], left, right[2], right[3]);
  }
}

/// Own sums, times factors[row], to the warp's rows of a tile that starts at `first`.
template <int kWidth>
__device__ __forceinline__ void store_rows(const float (&sums)[kWidth / 8][4],
                                           const AttentionSizes& sizes, int first,
                                           const float (&factors)[2], const HeadRows<float>& to) {
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int row = first + first_warp_row() + own_row(part);
    if (row >= sizes.length) continue;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const int column = n * 8 + own_column(part);
      if (column < sizes.width) to.row(row)[column] = sums[n][part] * factors[part / 2];
    }
  }
}

}  // namespace lockstep::cuda
