// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Loops over arrays in device code, four floats (16 bytes) at a time where all arrays allow it.
namespace lockstep::cuda {

/// How many elements an operation is for.
template <int kWidth>
struct Width {
  static constexpr int kCount = kWidth;
};

template <int kWidth>
struct Floats {
  float at[kWidth];
};

template <int kWidth>
__device__ Floats<kWidth> load(Width<kWidth>, const float* x) {
  if constexpr (kWidth == 4) {
    const float4 four = *reinterpret_cast<const float4*>(x);
    return {four.x, four.y, four.z, four.w};
  } else {
    return {*x};
  }
}

/// The same where `fours` does not say that x is aligned: a sum takes its elements in one order
/// wherever its arrays lie.
template <int kWidth>
__device__ Floats<kWidth> load(Width<kWidth> width, const float* x, bool fours) {
  if constexpr (kWidth == 4) {
    if (!fours) return {x[0], x[1], x[2], x[3]};
  }
  return load(width, x);
}

template <int kWidth>
__device__ void store(const Floats<kWidth>& floats, float* x) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(x) =
        make_float4(floats.at[0], floats.at[1], floats.at[2], floats.at[3]);
  } else {
    *x = floats.at[0];
  }
}

/// The same where `fours` does not say that x is aligned.
template <int kWidth>
__device__ void store(const Floats<kWidth>& floats, float* x, bool fours) {
  if constexpr (kWidth == 4) {
    if (!fours) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) x[k] = floats.at[k];
      return;
    }
  }
  store(floats, x);
}

/// True if all arrays begin at a multiple of 16 bytes.
template <typename... T>
__device__ bool aligned(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) | ...) & 15U) == 0;
}

/// Calls op(width, i) for this thread's part of [0, n): width 4 for four elements from i on, where
/// `fours` allows it, 1 for one. The threads are numbered `first` of `count`.
template <typename Op>
__device__ void for_each(std::int64_t n, bool fours, std::int64_t first, std::int64_t count,
                         const Op& op) {
  const std::int64_t in_fours = fours ? n / 4 * 4 : 0;
  for (std::int64_t i = 4 * first; i < in_fours; i += 4 * count) {
    op(Width<4>(), i);
  }
  for (std::int64_t i = in_fours + first; i < n; i += count) {
    op(Width<1>(), i);
  }
}

/// The same over all threads of a one-dimensional grid.
template <typename Op>
__device__ void for_each(std::int64_t n, bool fours, const Op& op) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for_each(n, fours, first, std::int64_t{gridDim.x} * blockDim.x, op);
}

__device__ inline bool skipped(const std::int32_t* skip) { return skip != nullptr && *skip != 0; }

}  // namespace lockstep::cuda
