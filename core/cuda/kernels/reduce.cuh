// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sums over a warp and a block, in an order that depends on nothing but their size.
namespace lockstep::cuda {

inline constexpr int kWarp = 32;

/// The value of the lane whose number differs in the bits of `mask`.
template <typename T>
__device__ T of_lane_across(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}

/// The sum of all lanes' values, for every lane.
template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = value + of_lane_across(value, offset);
  }
  return value;
}

/// The sum over a block of kThreads threads, for every thread. `shared` has kThreads / kWarp
/// entries and may be used again after a __syncthreads().
template <int kThreads, typename T>
__device__ T block_sum(T value, T* shared) {
  constexpr int kWarps = kThreads / kWarp;
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = shared[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) sum = sum + shared[i];
  return sum;
}

}  // namespace lockstep::cuda
