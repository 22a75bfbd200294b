// SPDX-License-Identifier: Apache-2.0
// A block a row, whose logits are read twice: for the largest and the sum of exponentials at once
// (Milakov & Gimelshein 2018), and for the gradient, then mostly from the L2 cache.
#include <cfloat>

#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"
#include "core/cuda/kernels/reduce.cuh"

namespace lockstep::cuda {
namespace {

// Σ e^(x − top) in fp64, of the elements seen so far.
struct Exponentials {
  float top;
  double sum;
};

// The same when the largest is `top`, which is no smaller.
__device__ double scaled_sum(const Exponentials& e, float top) {
  return e.sum * static_cast<double>(kernels::exponential(e.top - top));
}

__device__ Exponentials operator+(const Exponentials& a, const Exponentials& b) {
  const float top = fmaxf(a.top, b.top);
  return {top, scaled_sum(a, top) + scaled_sum(b, top)};
}

__device__ Exponentials of_lane_across(const Exponentials& e, int mask) {
  return {cuda::of_lane_across(e.top, mask), cuda::of_lane_across(e.sum, mask)};
}

// What a row's gradient is made of: e^(x − top)·factor − shift, and at the target `at_target`.
struct Gradient {
  float top;
  float factor;
  float shift;
  float at_target;
};

__device__ void store_gradient(const CrossEntropyArgs& a, float* row, std::int64_t target,
                               bool fours, const Gradient& g) {
  for_each(a.columns, true, threadIdx.x, kCrossEntropyThreads, [&](auto width, std::int64_t i) {
    auto x = load(width, row + i, fours);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) {
      const float e = kernels::exponential(x.at[k] - g.top);
      const float slope = kernels::multiply_add(e, g.factor, -g.shift);
      x.at[k] = i + k == target ? g.at_target : (i + k < a.vocabulary ? slope : 0.0F);
    }
    store(x, row + i, fours);
  });
}

__device__ void store_zeros(float* row, std::int64_t columns, bool fours) {
  for_each(columns, true, threadIdx.x, kCrossEntropyThreads,
           [&](auto width, std::int64_t i) { store(Floats<width.kCount>{}, row + i, fours); });
}

// With z = x − max x: loss = log Σeᶻ − (1 − s)·z[target] − s·mean(z), and the gradient is softmax
// minus the target's distribution. All but the exponentials, which are added in fours, is fp64: the
// loss is a small difference of larger terms.
__global__ void __launch_bounds__(kCrossEntropyThreads) cross_entropy(const CrossEntropyArgs a) {
  __shared__ Exponentials shared_exponentials[kCrossEntropyThreads / kWarp];
  __shared__ double shared_sums[kCrossEntropyThreads / kWarp];
  if (skipped(a.skip)) return;
  const bool fours = aligned(a.logits) && a.columns % 4 == 0;
  for (std::int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    float* row = a.logits + r * a.columns;
    const std::int32_t target = a.targets[r];
    if (target == a.ignored) {
      if (a.gradient) store_zeros(row, a.columns, fours);
      if (threadIdx.x == 0) a.losses[r] = 0.0F;
      continue;
    }
    const float target_logit = row[target];  // before any thread stores a gradient

    // The lowest finite number at first: −∞ − (−∞) would be NaN.
    Exponentials mine{-FLT_MAX, 0.0};
    double logit_sum = 0.0;
    for_each(a.vocabulary, true, threadIdx.x, kCrossEntropyThreads,
             [&](auto width, std::int64_t i) {
               auto x = load(width, row + i, fours);
               float top = mine.top;
#pragma unroll
               for (int k = 0; k < width.kCount; ++k) top = fmaxf(top, x.at[k]);
               if (top != mine.top) mine = {top, scaled_sum(mine, top)};
               if (a.smoothing != 0.0F) {
#pragma unroll
                 for (int k = 0; k < width.kCount; ++k) logit_sum += static_cast<double>(x.at[k]);
               }
#pragma unroll
               for (int k = 0; k < width.kCount; ++k) x.at[k] = kernels::exponential(x.at[k] - top);
               float sum = x.at[0];
               if constexpr (width.kCount == 4) sum = (x.at[0] + x.at[1]) + (x.at[2] + x.at[3]);
               mine.sum += static_cast<double>(sum);
             });
    const Exponentials all = block_sum<kCrossEntropyThreads>(mine, shared_exponentials);
    const double vocabulary = static_cast<double>(a.vocabulary);
    const double mass = static_cast<double>(a.smoothing);
    const double z_target = static_cast<double>(target_logit) - static_cast<double>(all.top);
    double mean = 0.0;
    if (a.smoothing != 0.0F) {
      mean = block_sum<kCrossEntropyThreads>(logit_sum, shared_sums) / vocabulary -
             static_cast<double>(all.top);
    }
    if (threadIdx.x == 0) {
      double loss = log(all.sum) - (1.0 - mass) * z_target;
      if (a.smoothing != 0.0F) loss -= mass * mean;
      a.losses[r] = static_cast<float>(loss);
    }
    if (a.gradient) {
      const float e_target = kernels::exponential(target_logit - all.top);
      const double probability = static_cast<double>(e_target) / all.sum;
      const double scale = static_cast<double>(a.gradient_scale);
      const double everywhere = mass / vocabulary;
      store_gradient(
          a, row, target, fours,
          {.top = all.top,
           .factor = static_cast<float>(scale / all.sum),
           .shift = static_cast<float>(scale * everywhere),
           .at_target = static_cast<float>(scale * (probability - (1.0 - mass) - everywhere))});
    }
    __syncthreads();  // the shared memory serves the next row
  }
}

// Counts by all threads; losses by one, in row order, which costs nanoseconds a row.
__global__ void __launch_bounds__(kLossSumsThreads) loss_sums(const LossSumsArgs a) {
  __shared__ double tile[kLossSumsThreads];
  __shared__ int tokens_of_warp[kLossSumsThreads / kWarp];
  __shared__ int non_finite_of_warp[kLossSumsThreads / kWarp];
  if (skipped(a.skip)) return;
  int tokens = 0;
  int non_finite = 0;
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < a.rows; begin += kLossSumsThreads) {
    const std::int64_t row = begin + threadIdx.x;
    float loss = 0.0F;
    if (row < a.rows && a.targets[row] != a.ignored) {
      loss = a.losses[row];
      tokens += 1;
      non_finite += isfinite(loss) ? 0 : 1;
    }
    tile[threadIdx.x] = static_cast<double>(loss);
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int i = 0; i < kLossSumsThreads; ++i) sum += tile[i];
    }
    __syncthreads();
  }
  const int all_tokens = block_sum<kLossSumsThreads>(tokens, tokens_of_warp);
  const int all_non_finite = block_sum<kLossSumsThreads>(non_finite, non_finite_of_warp);
  if (threadIdx.x == 0) {
    *a.loss = sum;
    *a.tokens = all_tokens;
    *a.non_finite = all_non_finite;
  }
}

}  // namespace

const Kernel<CrossEntropyArgs> kCrossEntropy{"cross_entropy",
                                             reinterpret_cast<const void*>(&cross_entropy)};
const Kernel<LossSumsArgs> kLossSums{"loss_sums", reinterpret_cast<const void*>(&loss_sums)};

}  // namespace lockstep::cuda
