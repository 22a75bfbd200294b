// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/cuda/kernels/arrays.cuh"
#include "core/functors.h"

/// Arrays of bf16 and f16, which kernels compute with in f32.
namespace lockstep::cuda {

/// Halves [i, i + width) as f32; four of them need an address that 8 divides.
template <int kWidth>
__device__ Floats<kWidth> load_halves(Width<kWidth>, const void* x, kernels::Real type,
                                      std::int64_t i) {
  const std::uint16_t* at = static_cast<const std::uint16_t*>(x) + i;
  std::uint16_t bits[kWidth];
  if constexpr (kWidth == 4) {
    const ushort4 four = *reinterpret_cast<const ushort4*>(at);
    bits[0] = four.x;
    bits[1] = four.y;
    bits[2] = four.z;
    bits[3] = four.w;
  } else {
    bits[0] = *at;
  }
  Floats<kWidth> floats;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    floats.at[k] =
        type == kernels::Real::bf16 ? kernels::from_bf16(bits[k]) : kernels::from_f16(bits[k]);
  }
  return floats;
}

template <int kWidth>
__device__ void store_halves(const Floats<kWidth>& floats, void* y, kernels::Real type,
                             std::int64_t i) {
  std::uint16_t* at = static_cast<std::uint16_t*>(y) + i;
  std::uint16_t bits[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    bits[k] = type == kernels::Real::bf16 ? kernels::to_bf16(floats.at[k])
                                          : kernels::to_f16(floats.at[k]);
  }
  if constexpr (kWidth == 4) {
    *reinterpret_cast<ushort4*>(at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
  } else {
    *at = bits[0];
  }
}

/// Elements of any type of weights.
template <int kWidth>
__device__ Floats<kWidth> load_reals(Width<kWidth> width, const void* x, kernels::Real type,
                                     std::int64_t i) {
  if (type == kernels::Real::f32) return load(width, static_cast<const float*>(x) + i);
  return load_halves(width, x, type, i);
}

}  // namespace lockstep::cuda
