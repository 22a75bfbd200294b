// SPDX-License-Identifier: Apache-2.0
// A warp a row: no barrier, and the row stays in the nearest cache between its passes.
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"
#include "core/cuda/kernels/reduce.cuh"

namespace lockstep::cuda {
namespace {

// Calls op(row, lane) for each row of this warp.
template <typename Op>
__device__ void for_each_row(std::int64_t rows, const Op& op) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t count = std::int64_t{gridDim.x} * warps;
  for (std::int64_t row = std::int64_t{blockIdx.x} * warps + warp; row < rows; row += count) {
    op(row, lane);
  }
}

__device__ float sum_of(const Floats<4>& x) { return (x.at[0] + x.at[1]) + (x.at[2] + x.at[3]); }
__device__ float sum_of(const Floats<1>& x) { return x.at[0]; }

// Two passes: the one-pass formula loses the variance of rows with a large mean.
__global__ void layer_norm(const LayerNormArgs a) {
  const bool fours = aligned(a.x, a.weight, a.bias, a.y) && a.columns % 4 == 0;
  const float columns = static_cast<float>(a.columns);
  for_each_row(a.rows, [&](std::int64_t row, int lane) {
    const float* x_row = a.x + row * a.columns;
    float* y_row = a.y + row * a.columns;
    float sum = 0.0F;
    for_each(a.columns, true, lane, kWarp, [&](auto width, std::int64_t i) {
      sum = sum + sum_of(load(width, x_row + i, fours));
    });
    const float mean = warp_sum(sum) / columns;
    float squares = 0.0F;
    for_each(a.columns, true, lane, kWarp, [&](auto width, std::int64_t i) {
      auto x = load(width, x_row + i, fours);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) {
        const float centred = x.at[k] - mean;
        x.at[k] = centred * centred;
      }
      squares = squares + sum_of(x);
    });
    const float variance = warp_sum(squares) / columns;
    const float rstd = 1.0F / sqrtf(variance + a.epsilon);
    for_each(a.columns, true, lane, kWarp, [&](auto width, std::int64_t i) {
      auto x = load(width, x_row + i, fours);
      const auto weight = load(width, a.weight + i, fours);
      const auto bias = load(width, a.bias + i, fours);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) {
        x.at[k] = kernels::multiply_add((x.at[k] - mean) * rstd, weight.at[k], bias.at[k]);
      }
      store(x, y_row + i, fours);
    });
    if (lane == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  });
}

// With n = (x − mean)·rstd and g = dy·weight: dx = rstd·(g − mean(g) − n·mean(g·n)).
__global__ void layer_norm_backward(const LayerNormBackwardArgs a) {
  const bool fours = aligned(a.y_grad, a.x, a.weight, a.x_grad) && a.columns % 4 == 0;
  const float columns = static_cast<float>(a.columns);
  for_each_row(a.rows, [&](std::int64_t row, int lane) {
    const float* dy_row = a.y_grad + row * a.columns;
    const float* x_row = a.x + row * a.columns;
    float* dx_row = a.x_grad + row * a.columns;
    const float mean = a.mean[row];
    const float rstd = a.rstd[row];
    float g_sum = 0.0F;
    float gn_sum = 0.0F;
    for_each(a.columns, true, lane, kWarp, [&](auto width, std::int64_t i) {
      auto g = load(width, dy_row + i, fours);
      const auto x = load(width, x_row + i, fours);
      const auto weight = load(width, a.weight + i, fours);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) {
        g.at[k] = g.at[k] * weight.at[k];
        gn_sum = kernels::multiply_add(g.at[k], (x.at[k] - mean) * rstd, gn_sum);
      }
      g_sum = g_sum + sum_of(g);
    });
    const float g_mean = warp_sum(g_sum) / columns;
    const float gn_mean = warp_sum(gn_sum) / columns;
    for_each(a.columns, true, lane, kWarp, [&](auto width, std::int64_t i) {
      auto dx = load(width, dy_row + i, fours);
      const auto x = load(width, x_row + i, fours);
      const auto weight = load(width, a.weight + i, fours);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) {
        const float centred = dx.at[k] * weight.at[k] - g_mean;
        const float n = (x.at[k] - mean) * rstd;
        dx.at[k] = rstd * kernels::multiply_add(-n, gn_mean, centred);
      }
      if (a.add) {
        const auto before = load(width, dx_row + i, fours);
#pragma unroll
        for (int k = 0; k < width.kCount; ++k) dx.at[k] = before.at[k] + dx.at[k];
      }
      store(dx, dx_row + i, fours);
    });
  });
}

// A thread a column; groups along y. The order is that of the CPU's kernel.
__global__ void layer_norm_groups(const LayerNormGroupsArgs a) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  const std::int64_t groups = (a.rows + kGroupRows - 1) / kGroupRows;
  for (std::int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
    const std::int64_t begin = group * kGroupRows;
    const std::int64_t left = a.rows - begin;
    const int rows = static_cast<int>(left < kGroupRows ? left : kGroupRows);
    const float* dy = a.y_grad + begin * a.columns + column;
    const float* x = a.x + begin * a.columns + column;
    float weight = 0.0F;
    float bias = 0.0F;
#pragma unroll 8
    for (int r = 0; r < rows; ++r) {
      const float slope = dy[r * a.columns];
      const float n = (x[r * a.columns] - a.mean[begin + r]) * a.rstd[begin + r];
      weight = kernels::multiply_add(slope, n, weight);
      bias = slope + bias;
    }
    a.weight_groups[group * a.columns + column] = weight;
    a.bias_groups[group * a.columns + column] = bias;
  }
}

}  // namespace

const Kernel<LayerNormArgs> kLayerNorm{"layer_norm", reinterpret_cast<const void*>(&layer_norm)};
const Kernel<LayerNormBackwardArgs> kLayerNormBackward{
    "layer_norm_backward", reinterpret_cast<const void*>(&layer_norm_backward)};
const Kernel<LayerNormGroupsArgs> kLayerNormGroups{
    "layer_norm_groups", reinterpret_cast<const void*>(&layer_norm_groups)};

}  // namespace lockstep::cuda
