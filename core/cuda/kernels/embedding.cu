// SPDX-License-Identifier: Apache-2.0
// The gradient of a token's row is the sum of the rows of y_grad that name it, in their order. So
// rows are first sorted by token, stably: each row counts the rows before it, which takes rows²
// comparisons but neither atomics nor further memory, and stays below a tenth of a millisecond at
// 16 K rows. Then one block follows each run of equal tokens. Lists linked by position would do
// with fewer comparisons, but every load of a list waits for the one before it.
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"
#include "core/cuda/kernels/halves.cuh"
#include "core/cuda/kernels/reduce.cuh"

namespace lockstep::cuda {
namespace {

// The columns of a row lie along x, rows along y.
__global__ void embedding(const EmbeddingArgs a) {
  if (skipped(a.skip)) return;
  const bool fours =
      aligned(static_cast<const char*>(a.token_table), static_cast<const char*>(a.position_table),
              reinterpret_cast<const char*>(a.y)) &&
      a.columns % 4 == 0;
  for (std::int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const std::int64_t token = a.tokens[row] * a.columns;
    const std::int64_t position = row % a.length * a.columns;
    float* y = a.y + row * a.columns;
    for_each(a.columns, fours, [&](auto width, std::int64_t i) {
      auto sum = load_reals(width, a.token_table, a.type, token + i);
      const auto place = load_reals(width, a.position_table, a.type, position + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) sum.at[k] = sum.at[k] + place.at[k];
      store(sum, y + i);
    });
  }
}

// The rows of a warp share each load of a token.
__global__ void token_order(const TokenOrderArgs a) {
  if (skipped(a.skip)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  const std::int64_t begin = warp * kTokenOrderRows;
  if (begin >= a.rows) return;
  const int first = static_cast<int>(begin);
  const int rows = static_cast<int>(a.rows);
  int token[kTokenOrderRows];
  int before[kTokenOrderRows];
#pragma unroll
  for (int k = 0; k < kTokenOrderRows; ++k) {
    token[k] = a.tokens[min(first + k, rows - 1)];
    before[k] = 0;
  }
#pragma unroll 4
  for (int i = lane; i < rows; i += kWarp) {
    const int other = a.tokens[i];
#pragma unroll
    for (int k = 0; k < kTokenOrderRows; ++k) {
      before[k] += other < token[k] || (other == token[k] && i < first + k) ? 1 : 0;
    }
  }
#pragma unroll
  for (int k = 0; k < kTokenOrderRows; ++k) {
    const int place = warp_sum(before[k]);
    if (lane == 0 && first + k < rows) a.order[place] = first + k;
  }
}

constexpr int kAhead = 8;  // rows whose loads do not wait for each other

// A thread a column; the places in `order` along y.
__global__ void token_gradient(const TokenGradientArgs a) {
  if (skipped(a.skip)) return;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  for (std::int64_t place = blockIdx.y; place < a.rows; place += gridDim.y) {
    const std::int32_t token = a.tokens[a.order[place]];
    if (place > 0 && a.tokens[a.order[place - 1]] == token) continue;  // within a run
    float* grad = a.token_grad + token * a.columns + column;
    float sum = *grad;
    bool more = true;
    for (std::int64_t at = place; more; at += kAhead) {
      bool same[kAhead];
      float value[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t row = at + k < a.rows ? a.order[at + k] : -1;
        same[k] = row >= 0 && a.tokens[row] == token;
        value[k] = same[k] ? a.y_grad[row * a.columns + column] : 0.0F;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum = same[k] ? sum + value[k] : sum;
      more = same[kAhead - 1];
    }
    *grad = sum;
  }
}

// A thread a column; positions along y.
__global__ void position_gradient(const PositionGradientArgs a) {
  if (skipped(a.skip)) return;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  for (std::int64_t position = blockIdx.y; position < a.length; position += gridDim.y) {
    const std::int64_t at = position * a.columns + column;
    float sum = a.position_grad[at];
#pragma unroll 8
    for (std::int64_t b = 0; b < a.batch; ++b) sum = sum + a.y_grad[b * a.length * a.columns + at];
    a.position_grad[at] = sum;
  }
}

}  // namespace

const Kernel<EmbeddingArgs> kEmbedding{"embedding", reinterpret_cast<const void*>(&embedding)};
const Kernel<TokenOrderArgs> kTokenOrder{"token_order",
                                         reinterpret_cast<const void*>(&token_order)};
const Kernel<TokenGradientArgs> kTokenGradient{"token_gradient",
                                               reinterpret_cast<const void*>(&token_gradient)};
const Kernel<PositionGradientArgs> kPositionGradient{
    "position_gradient", reinterpret_cast<const void*>(&position_gradient)};

}  // namespace lockstep::cuda
