// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {

void block_square_sums(Stream& stream, const Tensor& x, std::int64_t block, double* sums) {
  if (x.size() == 0) return;
  const std::int64_t blocks = std::min(ceil_div(x.size(), block), std::int64_t{1} << 30);
  launch(gpu::kBlockSquareSums, grid_of(blocks, 1, gpu::kSquareSumsThreads),
         gpu::BlockSquareSumsArgs{.x = x.as<float>(), .n = x.size(), .block = block, .sums = sums},
         stream);
}

}  // namespace lockstep::kernels::cuda
