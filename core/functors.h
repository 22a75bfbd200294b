// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/cpu/adamw_factors.h"

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

/// The arithmetic of the kernels, an element at a time, for host and device. The kernels of CUDA
/// are made of it, and tests on the CPU compare it with the kernels of the CPU, whose operations
/// and order it follows: the same bits where the CPU has fused multiply-adds.
namespace lockstep::kernels {

/// a·b + c, rounded once. Both compilers are told to fuse nothing by themselves.
LOCKSTEP_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

LOCKSTEP_HOST_DEVICE inline std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

LOCKSTEP_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

/// eˣ for x ≤ 88 to about 1 ulp; 0 below −87, where it would be subnormal; NaN for NaN. The steps
/// are those of exponential() in core/cpu/simd-inl.h.
LOCKSTEP_HOST_DEVICE inline float exponential(float x) {
  const float magic = 12582912.0F;  // 1.5 · 2²³
  const float shifted = multiply_add(x, 1.44269504F, magic);
  const float n = shifted - magic;
  const float r = multiply_add(-n, -2.12194440e-4F, multiply_add(-n, 0.693359375F, x));
  const float r2 = r * r;
  const float low = multiply_add(1.6666665459e-1F, r, 5.0000001201e-1F);
  const float middle = multiply_add(8.3334519073e-3F, r, 4.1665795894e-2F);
  const float high = multiply_add(1.9875691500e-4F, r, 1.3981999507e-3F);
  const float tail = multiply_add(multiply_add(high, r2, middle), r2, low);
  const float mantissa = multiply_add(tail, r2, r) + 1.0F;
  const float power = float_of((bits_of(shifted) << 23U) + 0x3F800000U);
  return x < -87.0F ? 0.0F : mantissa * power;
}

namespace gelu_constants {
inline constexpr float kTwoRoot = 1.5957691216057308F;  // 2·√(2/π)
inline constexpr float kCubic = 0.044715F;
inline constexpr float kBound = 9.0F;
}  // namespace gelu_constants

/// Within ±9, beyond which σ(2u) is 0 or 1. A NaN becomes a bound.
LOCKSTEP_HOST_DEVICE inline float gelu_bounded(float x) {
  const float above = x > -gelu_constants::kBound ? x : -gelu_constants::kBound;
  return above < gelu_constants::kBound ? above : gelu_constants::kBound;
}

/// e^(−2u) of a bounded x, u = √(2/π)·(x + 0.044715·x³).
LOCKSTEP_HOST_DEVICE inline float exp_minus_two_u(float x) {
  const float inner = multiply_add(gelu_constants::kCubic, x * x, 1.0F);
  return exponential((-gelu_constants::kTwoRoot * x) * inner);
}

/// gelu(x) = x·σ(2u).
LOCKSTEP_HOST_DEVICE inline float gelu(float x) {
  return x / (1.0F + exp_minus_two_u(gelu_bounded(x)));
}

/// gelu'(x) = σ + x·σ·(1 − σ)·(2u)′; NaN for NaN.
LOCKSTEP_HOST_DEVICE inline float gelu_slope(float x) {
  if (x != x) return x;
  const float inside = gelu_bounded(x);
  const float e = exp_minus_two_u(inside);
  const float sigma = 1.0F / (1.0F + e);
  const float cubic = multiply_add(3.0F * gelu_constants::kCubic, inside * inside, 1.0F);
  const float factor = (sigma * e) * ((gelu_constants::kTwoRoot * inside) * cubic);
  return multiply_add(factor, sigma, sigma);
}

/// What weights are made of, as DType has it; for kernels, which do not know of tensors.
enum class Real : std::uint8_t { f32, bf16, f16 };

/// Rounded to nearest even; a NaN stays one.
LOCKSTEP_HOST_DEVICE inline std::uint16_t to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = (bits + ((bits >> 16U) & 1U) + 0x7FFFU) >> 16U;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16U) | 0x40U : rounded);
}

LOCKSTEP_HOST_DEVICE inline float from_bf16(std::uint16_t x) {
  return float_of(static_cast<std::uint32_t>(x) << 16U);
}

/// Rounded to nearest even, to infinity above 65519, to subnormals below 2⁻¹⁴; a NaN stays one.
LOCKSTEP_HOST_DEVICE inline std::uint16_t to_f16(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = (bits ^ magnitude) >> 16U;
  std::uint32_t result = 0;
  if (magnitude >= (143U << 23U)) {
    result = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  } else if (magnitude < (113U << 23U)) {
    // The sum with 0.5 has the subnormal's mantissa as its last bits, rounded.
    result = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  } else {
    // Another exponent bias, then the upper ten bits of the mantissa; a carry may end at infinity.
    result = (magnitude + ((magnitude >> 13U) & 1U) - ((112U << 23U) - 0xFFFU)) >> 13U;
  }
  return static_cast<std::uint16_t>(result | sign);
}

LOCKSTEP_HOST_DEVICE inline float from_f16(std::uint16_t x) {
  const std::uint32_t magnitude = x & 0x7FFFU;
  const std::uint32_t sign = (x ^ magnitude) << 16U;
  const std::uint32_t shifted = magnitude << 13U;
  const std::uint32_t base = 113U << 23U;
  std::uint32_t result = shifted + (112U << 23U);
  if (magnitude < 0x400U) {
    result = bits_of(float_of(shifted + base) - float_of(base));  // mantissa · 2⁻²⁴
  } else if (magnitude >= 0x7C00U) {
    result = shifted + (224U << 23U);
  }
  return float_of(result | sign);
}

/// x rounded to `type`, kept in f32.
LOCKSTEP_HOST_DEVICE inline float rounded(float x, Real type) {
  if (type == Real::bf16) return from_bf16(to_bf16(x));
  if (type == Real::f16) return from_f16(to_f16(x));
  return x;
}

LOCKSTEP_HOST_DEVICE inline float scaled_gradient(float g, float scale, float clip) {
  return (g * scale) * clip;
}

/// Updates both moments; returns √v̂ + epsilon.
LOCKSTEP_HOST_DEVICE inline float update_moments(float gradient, float& m, float& v,
                                                 const AdamWFactors& f) {
  m = multiply_add(gradient, f.one_minus_beta1, m * f.beta1);
  v = multiply_add(gradient * gradient, f.one_minus_beta2, v * f.beta2);
  return std::sqrt(v) / f.root_scale + f.epsilon;
}

/// One weight's step of AdamW.
LOCKSTEP_HOST_DEVICE inline void adamw_element(float& w, float g, float& m, float& v,
                                               const AdamWFactors& f) {
  float gradient = scaled_gradient(g, f.scale, f.clip);
  if (f.l2 != 0.0F) gradient = multiply_add(f.l2, w, gradient);
  const float root = update_moments(gradient, m, v, f);
  w = multiply_add(-f.decay, w, w) - f.step_size * (m / root);
}

/// One weight's direction of LAMB, in place of its gradient.
LOCKSTEP_HOST_DEVICE inline void lamb_element(float w, float& g, float& m, float& v,
                                              const AdamWFactors& f) {
  const float root = update_moments(scaled_gradient(g, f.scale, f.clip), m, v, f);
  g = multiply_add(f.weight_decay, w, (m * f.inverse_correction) / root);
}

/// What a step of SGD needs for each element.
struct SgdFactors {
  float learning_rate;
  float momentum;
  float weight_decay;
  float scale;
  float clip;
  bool nesterov;
  bool first;  // t = 1: the buffer begins with the gradient
};

/// One weight's step of SGD without momentum.
LOCKSTEP_HOST_DEVICE inline void sgd_element(float& w, float g, const SgdFactors& f) {
  const float gradient = multiply_add(f.weight_decay, w, scaled_gradient(g, f.scale, f.clip));
  w = multiply_add(-f.learning_rate, gradient, w);
}

/// The same with momentum.
LOCKSTEP_HOST_DEVICE inline void sgd_element(float& w, float g, float& buffer,
                                             const SgdFactors& f) {
  const float gradient = multiply_add(f.weight_decay, w, scaled_gradient(g, f.scale, f.clip));
  buffer = f.first ? gradient : multiply_add(f.momentum, buffer, gradient);
  const float update = f.nesterov ? multiply_add(f.momentum, buffer, gradient) : buffer;
  w = multiply_add(-f.learning_rate, update, w);
}

}  // namespace lockstep::kernels
