// SPDX-License-Identifier: Apache-2.0
// Sums, copies and biases.
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"

namespace lockstep::cuda {
namespace {

__global__ void add(const AddArgs a) {
  for_each(a.n, aligned(a.x, a.y), [&](auto width, std::int64_t i) {
    const auto x = load(width, a.x + i);
    auto y = load(width, a.y + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) y.at[k] = y.at[k] + x.at[k];
    store(y, a.y + i);
  });
}

__global__ void add_scaled(const AddScaledArgs a) {
  for_each(a.n, aligned(a.x, a.y), [&](auto width, std::int64_t i) {
    const auto x = load(width, a.x + i);
    auto y = load(width, a.y + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k)
      y.at[k] = kernels::multiply_add(a.factor, x.at[k], y.at[k]);
    store(y, a.y + i);
  });
}

// Calls op(T(), i) for this thread's elements i of arrays of 16-byte words if `words`, then for
// those of single bytes, where the words end.
template <typename Op>
__device__ void for_each_word(std::int64_t bytes, bool words, const Op& op) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t count = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t whole = words ? bytes / 16 : 0;
  for (std::int64_t i = first; i < whole; i += count) op(uint4(), i);
  for (std::int64_t i = 16 * whole + first; i < bytes; i += count) op(char(), i);
}

__global__ void fill_zero(const FillZeroArgs a) {
  if (skipped(a.skip)) return;
  for_each_word(a.bytes, aligned(static_cast<const char*>(a.x)),
                [&](auto zero, std::int64_t i) { static_cast<decltype(zero)*>(a.x)[i] = zero; });
}

__global__ void copy(const CopyArgs a) {
  const bool words = aligned(static_cast<const char*>(a.x), static_cast<const char*>(a.y));
  for_each_word(a.bytes, words, [&](auto word, std::int64_t i) {
    using Word = decltype(word);
    static_cast<Word*>(a.y)[i] = static_cast<const Word*>(a.x)[i];
  });
}

// The columns of a row lie along x, rows along y.
__global__ void add_bias(const AddBiasArgs a) {
  const bool fours = aligned(a.bias, a.y) && a.columns % 4 == 0;
  for (std::int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    float* y_row = a.y + row * a.columns;
    for_each(a.columns, fours, [&](auto width, std::int64_t i) {
      const auto bias = load(width, a.bias + i);
      auto y = load(width, y_row + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) y.at[k] = y.at[k] + bias.at[k];
      store(y, y_row + i);
    });
  }
}

}  // namespace

const Kernel<AddArgs> kAdd{"add", reinterpret_cast<const void*>(&add)};
const Kernel<AddScaledArgs> kAddScaled{"add_scaled", reinterpret_cast<const void*>(&add_scaled)};
const Kernel<FillZeroArgs> kFillZero{"fill_zero", reinterpret_cast<const void*>(&fill_zero)};
const Kernel<CopyArgs> kCopy{"copy", reinterpret_cast<const void*>(&copy)};
const Kernel<AddBiasArgs> kAddBias{"add_bias", reinterpret_cast<const void*>(&add_bias)};

}  // namespace lockstep::cuda
