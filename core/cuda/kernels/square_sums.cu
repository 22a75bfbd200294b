// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"
#include "core/cuda/kernels/reduce.cuh"

namespace lockstep::cuda {
namespace {

// Squares in fp64: those of 1e20 and of 1e-25 fit. A block of threads a block of elements.
__global__ void __launch_bounds__(kSquareSumsThreads)
    block_square_sums(const BlockSquareSumsArgs a) {
  __shared__ double of_warp[kSquareSumsThreads / kWarp];
  const bool fours = aligned(a.x) && a.block % 4 == 0;
  const std::int64_t blocks = (a.n + a.block - 1) / a.block;
  for (std::int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
    const float* x = a.x + b * a.block;
    const std::int64_t left = a.n - b * a.block;
    double sum = 0.0;
    for_each(left < a.block ? left : a.block, true, threadIdx.x, kSquareSumsThreads,
             [&](auto width, std::int64_t i) {
               const auto floats = load(width, x + i, fours);
#pragma unroll
               for (int k = 0; k < width.kCount; ++k) {
                 const double wide = static_cast<double>(floats.at[k]);
                 sum = __fma_rn(wide, wide, sum);
               }
             });
    sum = block_sum<kSquareSumsThreads>(sum, of_warp);
    if (threadIdx.x == 0) a.sums[b] = sum;
    __syncthreads();  // the shared memory serves the next block
  }
}

}  // namespace

const Kernel<BlockSquareSumsArgs> kBlockSquareSums{
    "block_square_sums", reinterpret_cast<const void*>(&block_square_sums)};

}  // namespace lockstep::cuda
