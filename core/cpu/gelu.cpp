// SPDX-License-Identifier: Apache-2.0
// gelu(x) = x/2 · (1 + tanh u) = x · σ(2u), u = √(2/π)·(x + 0.044715·x³). The second form needs one
// exponential and keeps its relative precision where tanh u is near −1.
#include "core/arguments.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/gelu.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

constexpr float kTwoRoot = 1.5957691216057308F;  // 2·√(2/π)
constexpr float kCubic = 0.044715F;

// Beyond ±9, σ(2u) is 1, or 0 but for 1e-29: the exponential stays in the range of normal numbers,
// which are fast, and x³ in that of finite ones.
template <class D, class V>
HWY_INLINE V bounded(D d, V x) {
  return hn::Min(hn::Set(d, 9.0F), hn::Max(hn::Set(d, -9.0F), x));
}

// e^(−2u) of a bounded x.
template <class D, class V>
HWY_INLINE V exp_minus_two_u(D d, V x) {
  const V inner = hn::MulAdd(hn::Set(d, kCubic), hn::Mul(x, x), hn::Set(d, 1.0F));
  return exponential(d, hn::Mul(hn::Mul(hn::Set(d, -kTwoRoot), x), inner));
}

template <class D, class V>
HWY_INLINE V gelu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exp_minus_two_u(d, bounded(d, x))));
}

// σ + x·σ·(1 − σ)·(2u)′, where 1 − σ = e^(−2u)·σ. The bounds would hide a NaN.
template <class D, class V>
HWY_INLINE V gelu_slope(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  const V inside = bounded(d, x);
  const V e = exp_minus_two_u(d, inside);
  const V sigma = hn::Div(one, hn::Add(one, e));
  const V cubic = hn::MulAdd(hn::Set(d, 3.0F * kCubic), hn::Mul(inside, inside), one);
  const V factor =
      hn::Mul(hn::Mul(sigma, e), hn::Mul(hn::Mul(hn::Set(d, kTwoRoot), inside), cubic));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::MulAdd(factor, sigma, sigma));
}

void gelu_array(const float* x, float* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i)
                         HWY_ATTR { hn::StoreU(gelu(d, hn::LoadU(d, x + i)), d, y + i); });
}

void gelu_slope_array(const float* x, const float* y_grad, float* x_grad, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto slope = gelu_slope(d, hn::LoadU(d, x + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, y_grad + i), slope), d, x_grad + i);
  });
}

void bias_gelu_rows(const float* bias, float* x, float* y, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    float* x_row = x + r * columns;
    float* y_row = y + r * columns;
    for_each_vector(columns, [=](auto d, std::size_t i) HWY_ATTR {
      const auto biased = hn::Add(hn::LoadU(d, x_row + i), hn::LoadU(d, bias + i));
      hn::StoreU(biased, d, x_row + i);
      hn::StoreU(gelu(d, biased), d, y_row + i);
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(gelu_array);
HWY_EXPORT(gelu_slope_array);
HWY_EXPORT(bias_gelu_rows);
}  // namespace

void cpu::gelu_forward(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.enqueue([x, y] {
    HWY_DYNAMIC_DISPATCH(gelu_array)(x.as<float>(), y.as<float>(), to_size(x.size()));
  });
}

void cpu::gelu_backward(Stream& stream, const Tensor& x, const Tensor& y_grad,
                        const Tensor& x_grad) {
  stream.enqueue([x, y_grad, x_grad] {
    HWY_DYNAMIC_DISPATCH(gelu_slope_array)
    (x.as<float>(), y_grad.as<float>(), x_grad.as<float>(), to_size(x.size()));
  });
}

void cpu::bias_gelu_forward(Stream& stream, const Tensor& bias, const Tensor& x, const Tensor& y) {
  stream.enqueue([bias, x, y] {
    const Matrix shape = as_matrix(x);
    HWY_DYNAMIC_DISPATCH(bias_gelu_rows)
    (bias.as<float>(), x.as<float>(), y.as<float>(), to_size(shape.rows), to_size(shape.columns));
  });
}

}  // namespace lockstep::kernels
#endif
