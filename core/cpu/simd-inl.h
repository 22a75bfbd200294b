// SPDX-License-Identifier: Apache-2.0
// Loops over arrays, compiled once for each instruction set: hence the toggling guard of Highway.
#if defined(LOCKSTEP_CORE_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_CORE_CPU_SIMD_INL_H
#undef LOCKSTEP_CORE_CPU_SIMD_INL_H
#else
#define LOCKSTEP_CORE_CPU_SIMD_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using OneFloat = hn::CappedTag<float, 1>;  // what is left of an array, with the same arithmetic
using Doubles = hn::ScalableTag<double>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many floats as a vector has doubles

/// Calls op(tag, i) for every vector of [0, n), then for every single element left.
template <class Op>
HWY_INLINE void for_each_vector(std::size_t n, const Op& op) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) op(d, i);
  for (; i < n; ++i) op(OneFloat(), i);
}

/// Σ term(tag, i) over [0, n) in f32. The order depends on n alone.
template <class Term>
HWY_INLINE float sum_terms(std::size_t n, const Term& term) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(d, i));
    s1 = hn::Add(s1, term(d, i + lanes));
    s2 = hn::Add(s2, term(d, i + 2 * lanes));
    s3 = hn::Add(s3, term(d, i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, term(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += hn::GetLane(term(OneFloat(), i));
  return sum;
}

/// eˣ for x ≤ 88 to about 1 ulp; 0 below −87, where it would be subnormal; NaN for NaN. (Highway's
/// own Exp makes NaN 0, which would hide a broken run, and takes twice as many instructions.)
///
/// x = n·ln 2 + r; e^r by the polynomial of Cephes' expf.
template <class D, class V>
HWY_INLINE V exponential(D d, V x) {
  const hn::RebindToSigned<D> bits;
  const V one = hn::Set(d, 1.0F);
  // The sum is so large that its last mantissa bits count ones: n, rounded to nearest.
  const V magic = hn::Set(d, 12582912.0F);  // 1.5 · 2²³
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const V n = hn::Sub(shifted, magic);
  const V r =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x));
  const V r2 = hn::Mul(r, r);
  const V low = hn::MulAdd(hn::Set(d, 1.6666665459e-1F), r, hn::Set(d, 5.0000001201e-1F));
  const V middle = hn::MulAdd(hn::Set(d, 8.3334519073e-3F), r, hn::Set(d, 4.1665795894e-2F));
  const V high = hn::MulAdd(hn::Set(d, 1.9875691500e-4F), r, hn::Set(d, 1.3981999507e-3F));
  const V tail = hn::MulAdd(hn::MulAdd(high, r2, middle), r2, low);
  const V mantissa = hn::Add(hn::MulAdd(tail, r2, r), one);
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(bits, shifted));
  const V power = hn::BitCast(d, hn::Add(exponent, hn::BitCast(bits, one)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Mul(mantissa, power));
}

}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
