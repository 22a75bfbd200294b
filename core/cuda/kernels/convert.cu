// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"
#include "core/cuda/kernels/halves.cuh"

namespace lockstep::cuda {
namespace {

__global__ void convert(const ConvertArgs a) {
  const bool fours = aligned(static_cast<const char*>(a.x), static_cast<const char*>(a.y));
  if (a.to == Real::f32) {
    float* y = static_cast<float*>(a.y);
    for_each(a.n, fours,
             [&](auto width, std::int64_t i) { store(load_halves(width, a.x, a.from, i), y + i); });
  } else {
    const float* x = static_cast<const float*>(a.x);
    for_each(a.n, fours,
             [&](auto width, std::int64_t i) { store_halves(load(width, x + i), a.y, a.to, i); });
  }
}

__global__ void round(const RoundArgs a) {
  for_each(a.n, aligned(a.x), [&](auto width, std::int64_t i) {
    auto x = load(width, a.x + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) x.at[k] = kernels::rounded(x.at[k], a.type);
    store(x, a.x + i);
  });
}

}  // namespace

const Kernel<ConvertArgs> kConvert{"convert", reinterpret_cast<const void*>(&convert)};
const Kernel<RoundArgs> kRound{"round", reinterpret_cast<const void*>(&round)};

}  // namespace lockstep::cuda
