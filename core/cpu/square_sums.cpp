// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/arguments.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/square_sums.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

// Squares in fp64: those of 1e20 and of 1e-25 fit.
double square_sum(const float* x, std::size_t n) {
  const Doubles d;
  const HalfFloats half;
  const std::size_t lanes = hn::Lanes(d);
  const auto wide = [=](std::size_t i)
                        HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(half, x + i)); };
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto x0 = wide(i);
    const auto x1 = wide(i + lanes);
    const auto x2 = wide(i + 2 * lanes);
    const auto x3 = wide(i + 3 * lanes);
    s0 = hn::MulAdd(x0, x0, s0);
    s1 = hn::MulAdd(x1, x1, s1);
    s2 = hn::MulAdd(x2, x2, s2);
    s3 = hn::MulAdd(x3, x3, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(square_sum);
}  // namespace

void cpu::block_square_sums(Stream& stream, const Tensor& x, std::int64_t block, double* sums) {
  stream.enqueue([=] {
    for (std::int64_t begin = 0; begin < x.size(); begin += block) {
      sums[begin / block] = HWY_DYNAMIC_DISPATCH(square_sum)(
          x.as<float>() + begin, to_size(std::min(block, x.size() - begin)));
    }
  });
}

}  // namespace lockstep::kernels
#endif
