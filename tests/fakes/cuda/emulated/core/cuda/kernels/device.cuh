// SPDX-License-Identifier: Apache-2.0
// In place of core/cuda/kernels/device.cuh where the kernels are compiled as C++: what its
// instructions do, as the PTX ISA describes them, over the threads of a block runner.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/fakes/cuda/block_runner.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (lockstep::fake::thread_index())
#define blockIdx (lockstep::fake::block_index())
#define gridDim (lockstep::fake::grid_size())

namespace lockstep::cuda {

inline float4* shared_memory() { return static_cast<float4*>(fake::shared_start()); }

inline void barrier() { fake::wait_for_block(); }

inline unsigned own_lane() { return threadIdx.x % 32; }

inline float from_lane_xor(float value, int mask) {
  fake::show_lanes(&value);
  const unsigned lane = own_lane() ^ static_cast<unsigned>(mask);
  const float got = *static_cast<const float*>(fake::shown_by(lane));
  fake::wait_for_warp();
  return got;
}

// Rounded to nearest even.
inline std::uint32_t bf16_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  if (std::isnan(x)) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float half_of_pair(std::uint32_t pair, unsigned half) {
  const std::uint32_t bits = (half == 0 ? pair << 16 : pair & 0xffff0000);
  float x = 0.0F;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline std::uint32_t pack_bf16(float low, float high) { return bf16_of(low) | bf16_of(high) << 16; }

inline void load_pairs(std::uint32_t (&to)[4], const std::uint16_t* row, bool transposed) {
  fake::check_shared(row, 16, 16);
  fake::show_lanes(row);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](unsigned i) {
      unsigned r = own_lane() / 4;
      unsigned c = 2 * (own_lane() % 4) + i;
      if (transposed) std::swap(r, c);
      return std::uint32_t{static_cast<const std::uint16_t*>(fake::shown_by(8 * matrix + r))[c]};
    };
    to[matrix] = element(0) | element(1) << 16;
  }
  fake::wait_for_warp();
}
inline void load_matrices(std::uint32_t (&to)[4], const std::uint16_t* row) {
  load_pairs(to, row, false);
}
inline void load_transposed(std::uint32_t (&to)[4], const std::uint16_t* row) {
  load_pairs(to, row, true);
}

inline void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  const std::uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  fake::show_lanes(mine);
  // Which lane and register hold an element.
  const auto left = [](unsigned row, unsigned k) {
    const auto* of = static_cast<const std::uint32_t*>(fake::shown_by(row % 8 * 4 + k % 8 / 2));
    return half_of_pair(of[row / 8 + k / 8 * 2], k % 2);
  };
  const auto right = [](unsigned k, unsigned column) {
    const auto* of = static_cast<const std::uint32_t*>(fake::shown_by(column * 4 + k % 8 / 2));
    return half_of_pair(of[4 + k / 8], k % 2);
  };
  for (unsigned part = 0; part < 4; ++part) {
    const unsigned row = own_lane() / 4 + part / 2 * 8;
    const unsigned column = own_lane() % 4 * 2 + part % 2;
    float sum = 0.0F;
    for (unsigned k = 0; k < 16; ++k) sum += left(row, k) * right(k, column);
    sums[part] += sum;
  }
  fake::wait_for_warp();
}

}  // namespace lockstep::cuda
