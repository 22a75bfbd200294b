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

// Asks for the line as one that this core will write: else it comes once to be read and once more
// to be owned, each time from the other core's cache.
#if defined(__x86_64__)
HWY_INLINE void fetch_for_writing(const float* line) {
  asm volatile("prefetchw %0" : : "m"(*line));
}
#else
HWY_INLINE void fetch_for_writing(const float* line) { __builtin_prefetch(line, 1); }
#endif

void add_to_one(const float* a, const float* b, float* out, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

// for_each_vector in the order asked for.
template <class Op>
HWY_INLINE void walk(std::size_t n, Direction direction, const Op& op) {
  if (direction == Direction::upward) {
    for_each_vector(n, op);
    return;
  }
  const kernels::HWY_NAMESPACE::Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = n;
  while (i % lanes != 0) op(kernels::HWY_NAMESPACE::OneFloat(), --i);
  while (i > 0) op(d, i -= lanes);
}

HWY_INLINE bool asks_at(FetchAhead ahead, std::size_t i) {
  return i >= ahead.first && i < ahead.last;
}

void add_to_two(const float* a, const float* b, float* out0, float* out1, std::size_t n,
                FetchAhead ahead, Direction direction) {
  walk(n, direction, [=](auto d, std::size_t i) HWY_ATTR {
    if (asks_at(ahead, i)) {
      fetch_for_writing(out0 + i + ahead.offset);
      fetch_for_writing(out1 + i + ahead.offset);
    }
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    hn::StoreU(sum, d, out0 + i);
    hn::StoreU(sum, d, out1 + i);
  });
}

void add_to_many(const float* a, const float* b, float* const* outs, std::size_t out_count,
                 std::size_t n, FetchAhead ahead, Direction direction) {
  walk(n, direction, [=](auto d, std::size_t i) HWY_ATTR {
    if (asks_at(ahead, i)) {
      for (std::size_t j = 0; j < out_count; ++j) fetch_for_writing(outs[j] + i + ahead.offset);
    }
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    for (std::size_t j = 0; j < out_count; ++j) hn::StoreU(sum, d, outs[j] + i);
  });
}

void add_arrays(const float* a, const float* b, float* const* outs, std::size_t out_count,
                std::size_t n, FetchAhead ahead, Direction direction) {
  if (out_count == 1 && ahead.last == 0) return add_to_one(a, b, outs[0], n);
  if (out_count == 2) return add_to_two(a, b, outs[0], outs[1], n, ahead, direction);
  add_to_many(a, b, outs, out_count, n, ahead, direction);
}

}  // namespace
}  // namespace lockstep::shared_memory::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::shared_memory {

HWY_EXPORT(add_arrays);

void add_to_all(const float* a, const float* b, std::span<float* const> outs, std::size_t count,
                FetchAhead ahead, Direction direction) {
  HWY_DYNAMIC_DISPATCH(add_arrays)(a, b, outs.data(), outs.size(), count, ahead, direction);
}

}  // namespace lockstep::shared_memory
#endif
