// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"

namespace lockstep::cuda {
namespace {

__global__ void gelu(const GeluArgs a) {
  for_each(a.n, aligned(a.x, a.y), [&](auto width, std::int64_t i) {
    auto x = load(width, a.x + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) x.at[k] = kernels::gelu(x.at[k]);
    store(x, a.y + i);
  });
}

__global__ void gelu_backward(const GeluBackwardArgs a) {
  for_each(a.n, aligned(a.x, a.y_grad, a.x_grad), [&](auto width, std::int64_t i) {
    const auto x = load(width, a.x + i);
    auto grad = load(width, a.y_grad + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) grad.at[k] = grad.at[k] * kernels::gelu_slope(x.at[k]);
    store(grad, a.x_grad + i);
  });
}

// The columns of a row lie along x, rows along y.
__global__ void bias_gelu(const BiasGeluArgs a) {
  const bool fours = aligned(a.bias, a.x, a.y) && a.columns % 4 == 0;
  for (std::int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    float* x_row = a.x + row * a.columns;
    float* y_row = a.y + row * a.columns;
    for_each(a.columns, fours, [&](auto width, std::int64_t i) {
      const auto bias = load(width, a.bias + i);
      auto x = load(width, x_row + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) x.at[k] = x.at[k] + bias.at[k];
      store(x, x_row + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) x.at[k] = kernels::gelu(x.at[k]);
      store(x, y_row + i);
    });
  }
}

}  // namespace

const Kernel<GeluArgs> kGelu{"gelu", reinterpret_cast<const void*>(&gelu)};
const Kernel<GeluBackwardArgs> kGeluBackward{"gelu_backward",
                                             reinterpret_cast<const void*>(&gelu_backward)};
const Kernel<BiasGeluArgs> kBiasGelu{"bias_gelu", reinterpret_cast<const void*>(&bias_gelu)};

}  // namespace lockstep::cuda
