// SPDX-License-Identifier: Apache-2.0
// AdamW, LAMB and SGD, element by element: the bits do not depend on where arrays are cut.
#include "core/cuda/kernel_args.h"
#include "core/cuda/kernels/arrays.cuh"

namespace lockstep::cuda {
namespace {

// False if the gate is closed; else the clip that it asks for. One thread of a block reads it: it
// lies in the host's memory.
__device__ bool enter(const Gate& gate, float& clip) {
  __shared__ bool shared_open;
  __shared__ float shared_clip;
  if (gate.open == nullptr) return true;
  if (threadIdx.x == 0) {
    shared_open = *gate.open;
    shared_clip = *gate.clip;
  }
  __syncthreads();
  clip = shared_clip;
  return shared_open;
}

__global__ void adamw(const MomentStepArgs a) {
  AdamWFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  for_each(a.n, aligned(a.w, a.g, a.m, a.v), [&](auto width, std::int64_t i) {
    auto w = load(width, a.w + i);
    const auto g = load(width, a.g + i);
    auto m = load(width, a.m + i);
    auto v = load(width, a.v + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) {
      kernels::adamw_element(w.at[k], g.at[k], m.at[k], v.at[k], f);
    }
    store(w, a.w + i);
    store(m, a.m + i);
    store(v, a.v + i);
  });
}

__global__ void lamb(const MomentStepArgs a) {
  AdamWFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  for_each(a.n, aligned(a.w, a.g, a.m, a.v), [&](auto width, std::int64_t i) {
    const auto w = load(width, a.w + i);
    auto g = load(width, a.g + i);
    auto m = load(width, a.m + i);
    auto v = load(width, a.v + i);
#pragma unroll
    for (int k = 0; k < width.kCount; ++k) {
      kernels::lamb_element(w.at[k], g.at[k], m.at[k], v.at[k], f);
    }
    store(g, a.g + i);
    store(m, a.m + i);
    store(v, a.v + i);
  });
}

__global__ void sgd(const SgdArgs a) {
  SgdFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  if (a.buffer == nullptr) {
    for_each(a.n, aligned(a.w, a.g), [&](auto width, std::int64_t i) {
      auto w = load(width, a.w + i);
      const auto g = load(width, a.g + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) kernels::sgd_element(w.at[k], g.at[k], f);
      store(w, a.w + i);
    });
  } else {
    for_each(a.n, aligned(a.w, a.g, a.buffer), [&](auto width, std::int64_t i) {
      auto w = load(width, a.w + i);
      const auto g = load(width, a.g + i);
      auto buffer = load(width, a.buffer + i);
#pragma unroll
      for (int k = 0; k < width.kCount; ++k) {
        kernels::sgd_element(w.at[k], g.at[k], buffer.at[k], f);
      }
      store(w, a.w + i);
      store(buffer, a.buffer + i);
    });
  }
}

}  // namespace

const Kernel<MomentStepArgs> kAdamW{"adamw", reinterpret_cast<const void*>(&adamw)};
const Kernel<MomentStepArgs> kLamb{"lamb", reinterpret_cast<const void*>(&lamb)};
const Kernel<SgdArgs> kSgd{"sgd", reinterpret_cast<const void*>(&sgd)};

}  // namespace lockstep::cuda
