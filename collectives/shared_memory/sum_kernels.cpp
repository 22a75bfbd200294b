// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/sum_kernels.h"

#include "core/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/shared_memory/sum_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::shared_memory::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::for_each_vector;

void add_to_one(const float* a, const float* b, float* out, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void add_to_two(const float* a, const float* b, float* out0, float* out1, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    hn::StoreU(sum, d, out0 + i);
    hn::StoreU(sum, d, out1 + i);
  });
}

void add_to_many(const float* a, const float* b, float* const* outs, std::size_t out_count,
                 std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    for (std::size_t j = 0; j < out_count; ++j) hn::StoreU(sum, d, outs[j] + i);
  });
}

void add_arrays(const float* a, const float* b, float* const* outs, std::size_t out_count,
                std::size_t n) {
  if (out_count == 1) return add_to_one(a, b, outs[0], n);
  if (out_count == 2) return add_to_two(a, b, outs[0], outs[1], n);
  add_to_many(a, b, outs, out_count, n);
}

}  // namespace
}  // namespace lockstep::shared_memory::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::shared_memory {

HWY_EXPORT(add_arrays);

void add_to_all(const float* a, const float* b, std::span<float* const> outs, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_arrays)(a, b, outs.data(), outs.size(), count);
}

}  // namespace lockstep::shared_memory
#endif
