// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/cuda/attention_args.h"
#include "core/cuda/kernels/device.cuh"

namespace lockstep::cuda {

constexpr int kTile = kAttentionTile;

/// The rows [T, width] of one head inside a tensor [B, T, parts · C].
template <typename Float>
struct HeadRows {
  Float* data;
  std::int64_t stride;
  __device__ Float* row(int i) const { return data + i * stride; }
};

/// `part` of `parts` is the query, key or value of qkv, or all there is of y.
template <typename Float>
__device__ HeadRows<Float> rows_of_head(Float* x, const AttentionSizes& sizes, int head_of_all,
                                        int part, int parts) {
  const std::int64_t model = static_cast<std::int64_t>(sizes.heads) * sizes.width;
  const std::int64_t batch = head_of_all / sizes.heads;
  const std::int64_t head = head_of_all % sizes.heads;
  return {x + (batch * sizes.length * parts + part) * model + head * sizes.width, parts * model};
}

/// Over kLanes neighbouring lanes; each gets the same value.
template <int kLanes>
__device__ __forceinline__ float largest_of(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, from_lane_xor(value, mask));
  }
  return value;
}
template <int kLanes>
__device__ __forceinline__ float sum_of(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += from_lane_xor(value, mask);
  return value;
}

/// Four floats of a row, `factor` times; zeros where the head or the sequence ends.
__device__ __forceinline__ float4 read_four(const HeadRows<const float>& x,
                                            const AttentionSizes& sizes, int row, int column,
                                            float factor) {
  float4 four = {0.0F, 0.0F, 0.0F, 0.0F};
  if (row >= sizes.length || column >= sizes.width) return four;
  const float* from = x.row(row) + column;
  if (sizes.vectors) {  // and so the width is a multiple of four
    four = *reinterpret_cast<const float4*>(from);
  } else {
    four.x = from[0];
    if (column + 1 < sizes.width) four.y = from[1];
    if (column + 2 < sizes.width) four.z = from[2];
    if (column + 3 < sizes.width) four.w = from[3];
  }
  return {four.x * factor, four.y * factor, four.z * factor, four.w * factor};
}

template <typename Args>
Kernel<Args> kernel_of(const char* name, void (*function)(Args)) {
  return {name, reinterpret_cast<const void*>(function)};
}

/// AttentionKernels of a template over the width of a head.
#define LOCKSTEP_KERNELS_BY_WIDTH(kernel)                                            \
  {                                                                                  \
    kernel_of(#kernel " 32", kernel<32>), kernel_of(#kernel " 64", kernel<64>),      \
        kernel_of(#kernel " 96", kernel<96>), kernel_of(#kernel " 128", kernel<128>) \
  }

}  // namespace lockstep::cuda
