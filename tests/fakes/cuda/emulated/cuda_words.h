// SPDX-License-Identifier: Apache-2.0
// Included before each kernel source that is compiled as C++: the words of CUDA that they use, over
// the threads of a block runner.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <cmath>

#include "tests/fakes/cuda/block_runner.h"

#undef __shared__
#define __shared__ static  // one block runs at a time
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (lockstep::fake::thread_index())
#define blockIdx (lockstep::fake::block_index())
#define gridDim (lockstep::fake::grid_size())
#define blockDim (lockstep::fake::block_size())

namespace lockstep::fake {

/// Set by the launch.
inline Index& block_size() {
  static Index size;
  return size;
}

}  // namespace lockstep::fake

inline void __syncthreads() { lockstep::fake::wait_for_block(); }

template <typename T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int lanes) {
  lockstep::fake::show_lanes(&value);
  const unsigned lane = threadIdx.x % 32 ^ static_cast<unsigned>(lanes);
  const T got = *static_cast<const T*>(lockstep::fake::shown_by(lane));
  lockstep::fake::wait_for_warp();
  return got;
}

inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

using std::isfinite;
using std::min;
