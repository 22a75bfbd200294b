// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/reduce.cuh"

namespace lockstep::cuda {
namespace {

// One block for all: the smallest position needs no atomics then, and some ten thousand indices
// take microseconds.
__global__ void check_indices(const CheckIndicesArgs a) {
  __shared__ long long of_warp[kCheckIndicesThreads / kWarp];
  long long first = a.n;
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const std::int32_t value = a.values[i];
    if (value >= 0 && value < a.limit) continue;
    if (a.may_ignore && value == a.ignored) continue;
    first = i;
    break;
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const long long other = of_lane_across(first, offset);
    first = other < first ? other : first;
  }
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = first;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned i = 1; i < blockDim.x / kWarp; ++i) first = min(first, of_warp[i]);
  const bool found = first < a.n;
  *a.skip = found ? 1 : 0;
  *a.bad = {.found = found ? 1 : 0,
            .position = found ? first : 0,
            .value = found ? std::int64_t{a.values[first]} : 0};
}

}  // namespace

const Kernel<CheckIndicesArgs> kCheckIndices{"check_indices",
                                             reinterpret_cast<const void*>(&check_indices)};

}  // namespace lockstep::cuda
