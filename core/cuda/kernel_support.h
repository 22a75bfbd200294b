// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/arguments.h"
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels.h"

/// What the functions that launch kernels share. Grids depend on shapes alone.
namespace lockstep::kernels::cuda {

namespace gpu = lockstep::cuda;  // whose launch() is found by its arguments

inline constexpr std::int64_t kThreads = 256;
inline constexpr std::int64_t kMostBlocks = 2048;  // enough for every multiprocessor of any device
inline constexpr std::int64_t kMostRows = 65535;   // of a grid along y

constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

inline gpu::Grid grid_of(std::int64_t columns, std::int64_t rows, std::int64_t threads) {
  return {.blocks = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)),
          .threads = dim3(static_cast<unsigned>(threads))};
}

/// For `n` > 0 elements, four a thread and more in a loop.
inline gpu::Grid grid_of_elements(std::int64_t n) {
  return grid_of(std::min(ceil_div(n, 4 * kThreads), kMostBlocks), 1, kThreads);
}

/// For rows along y, four columns a thread.
inline gpu::Grid grid_of_rows(Matrix shape) {
  const std::int64_t threads = std::min(kThreads, ceil_div(ceil_div(shape.columns, 4), 32) * 32);
  return grid_of(ceil_div(shape.columns, 4 * threads), std::min(shape.rows, kMostRows), threads);
}

/// For rows along y, one column a thread.
inline gpu::Grid grid_of_columns(std::int64_t rows, std::int64_t columns) {
  const std::int64_t threads = 128;
  return grid_of(ceil_div(columns, threads), std::clamp(rows, std::int64_t{1}, kMostRows), threads);
}

/// For `count` > 0 things of one warp each.
inline gpu::Grid grid_of_warps(std::int64_t count) {
  return grid_of(std::min(ceil_div(count, kThreads / 32), std::int64_t{1} << 30), 1, kThreads);
}

/// f32, bf16 or f16, which the caller has checked.
inline Real real_of(DType type) {
  if (type == DType::bf16) return Real::bf16;
  return type == DType::f16 ? Real::f16 : Real::f32;
}

}  // namespace lockstep::kernels::cuda
