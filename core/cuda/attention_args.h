// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/cuda/launch.h"

namespace lockstep::cuda {

/// Queries and keys of one block: a tile. Keys and queries start at multiples of it, so that a tile
/// of queries sees whole tiles of keys and one, its own, in part.
inline constexpr int kAttentionTile = 64;
/// Each kernel is there for these widths of a head; a head between them is padded with zeros in
/// shared memory.
inline constexpr std::array<int, 4> kAttentionWidths = {32, 64, 96, 128};

struct AttentionSizes {
  int batch = 0;
  int length = 0;  // T
  int heads = 0;
  int width = 0;         // of a head; C = heads · width
  float scale = 0.0F;    // of the scores, 1/√width
  bool vectors = false;  // every row of every head may be read four floats at a time
};

struct AttentionForwardArgs {
  AttentionSizes sizes;
  const float* qkv = nullptr;    // [B, T, 3C]
  float* y = nullptr;            // [B, T, C]
  float* log_sum_exp = nullptr;  // [B, heads, T]
};

/// Of all three kernels of backward.
struct AttentionBackwardArgs {
  AttentionSizes sizes;
  const float* qkv = nullptr;          // [B, T, 3C]
  const float* y = nullptr;            // [B, T, C]
  const float* y_grad = nullptr;       // [B, T, C]
  const float* log_sum_exp = nullptr;  // [B, heads, T]
  float* row_sums = nullptr;           // [B, heads, T] Σ y_grad ∘ y of a head's row
  float* qkv_grad = nullptr;           // [B, T, 3C]
};

/// One kernel for each of kAttentionWidths. Grid: B · heads by tiles.
template <typename Args>
using AttentionKernels = std::array<Kernel<Args>, kAttentionWidths.size()>;
extern const AttentionKernels<AttentionForwardArgs> kAttentionForward;
extern const AttentionKernels<AttentionForwardArgs> kAttentionForwardBf16;
// qkv_grad's keys and values, a block a tile of keys; its queries, a block a tile of queries.
extern const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeys;
extern const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeysBf16;
extern const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueries;
extern const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueriesBf16;
// Writes row_sums, a warp a row.
extern const Kernel<AttentionBackwardArgs> kAttentionRowSums;

inline constexpr int kAttentionThreads = 256;      // of a block of the f32 kernels
inline constexpr int kAttentionThreadsBf16 = 128;  // of the bf16 kernels: 16 rows a warp
inline constexpr int kRowSumsThreads = 256;

// Rows in shared memory are padded so that the lanes of a warp, each at another row, meet different
// banks; 16 bytes keep them aligned for vectors.
inline constexpr int kFloatPadding = 4;
inline constexpr int kBf16Padding = 8;

/// Bytes of `tiles` tiles of a head, and of a tile of scores where `scores`, in f32.
constexpr unsigned attention_shared_bytes(int width, int tiles, bool scores) {
  const int floats =
      tiles * (width + kFloatPadding) + (scores ? kAttentionTile + kFloatPadding : 0);
  return static_cast<unsigned>(kAttentionTile * floats * 4);
}
/// Of `tiles` tiles of a head in bf16 with `columns` floats a row; scores stay in registers.
constexpr unsigned attention_shared_bytes_bf16(int width, int tiles, int columns) {
  return static_cast<unsigned>(kAttentionTile * (tiles * (width + kBf16Padding) * 2 + columns * 4));
}

}  // namespace lockstep::cuda
