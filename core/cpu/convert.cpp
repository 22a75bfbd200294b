// SPDX-License-Identifier: Apache-2.0
// f32 from and to bf16 and f16 (IEEE 754 binary16), rounded to nearest even, by integer arithmetic:
// the same bits on every instruction set. (Highway's own conversions truncate on some.)
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/arguments.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"
#include "lockstep/core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/convert.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000U;

// The low 16 bits of each element.
template <class D, class V>
HWY_INLINE void store_low_halves(D /*d*/, V bits, std::uint16_t* out) {
  const hn::Rebind<std::uint16_t, D> halves;
  const hn::RebindToSigned<hn::RebindToUnsigned<D>> whole;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(whole, bits)), halves, out);
}

template <class D>
HWY_INLINE auto load_halves(D /*d*/, const std::uint16_t* in) {
  const hn::Rebind<std::uint16_t, D> halves;
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(halves, in));
}

void to_bf16(const float* x, std::uint16_t* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> u;
    const auto bits = hn::BitCast(u, hn::LoadU(d, x + i));
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7FFFFFFFU));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1U));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7FFFU))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40U));
    const auto is_nan = hn::Gt(magnitude, hn::Set(u, kInfinity));
    store_low_halves(d, hn::IfThenElse(is_nan, quiet, rounded), y + i);
  });
}

void from_bf16(const std::uint16_t* x, float* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(load_halves(d, x + i))), d, y + i);
  });
}

void to_f16(const float* x, std::uint16_t* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> u;
    const auto bits = hn::BitCast(u, hn::LoadU(d, x + i));
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7FFFFFFFU));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    // Another exponent bias, then the upper ten bits of the mantissa; a carry may end at infinity.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1U));
    const auto rebiased = hn::Sub(hn::Add(magnitude, odd), hn::Set(u, (112U << 23) - 0xFFFU));
    const auto normal = hn::ShiftRight<13>(rebiased);
    // Below 2⁻¹⁴ the sum with 0.5 has the subnormal's mantissa as its last bits, rounded.
    const auto half = hn::Set(d, 0.5F);
    const auto small =
        hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(u, half));
    const auto nan_or_infinity = hn::IfThenElse(hn::Gt(magnitude, hn::Set(u, kInfinity)),
                                                hn::Set(u, 0x7E00U), hn::Set(u, 0x7C00U));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 113U << 23)), small, normal);
    result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 143U << 23)), result, nan_or_infinity);
    store_low_halves(d, hn::Or(result, sign), y + i);
  });
}

void from_f16(const std::uint16_t* x, float* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> u;
    const auto bits = load_halves(d, x + i);
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7FFFU));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(u, 112U << 23));
    const auto special = hn::Add(shifted, hn::Set(u, 224U << 23));
    // mantissa · 2⁻²⁴: the mantissa behind the bits of 2⁻¹⁴, less 2⁻¹⁴.
    const auto base = hn::Set(u, 113U << 23);
    const auto small =
        hn::BitCast(u, hn::Sub(hn::BitCast(d, hn::Add(shifted, base)), hn::BitCast(d, base)));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 0x400U)), small, normal);
    result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 0x7C00U)), result, special);
    hn::StoreU(hn::BitCast(d, hn::Or(result, sign)), d, y + i);
  });
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(to_bf16);
HWY_EXPORT(from_bf16);
HWY_EXPORT(to_f16);
HWY_EXPORT(from_f16);
}  // namespace

void convert_elements(const void* x, DType from, void* y, DType to, std::size_t n) {
  if (n == 0) return;
  const auto* halves = static_cast<const std::uint16_t*>(x);
  if (from == to) {
    std::memmove(y, x, n * size_of(from));
  } else if (from == DType::f32 && to == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(to_bf16)(static_cast<const float*>(x), static_cast<std::uint16_t*>(y), n);
  } else if (from == DType::f32 && to == DType::f16) {
    HWY_DYNAMIC_DISPATCH(to_f16)(static_cast<const float*>(x), static_cast<std::uint16_t*>(y), n);
  } else if (from == DType::bf16 && to == DType::f32) {
    HWY_DYNAMIC_DISPATCH(from_bf16)(halves, static_cast<float*>(y), n);
  } else if (from == DType::f16 && to == DType::f32) {
    HWY_DYNAMIC_DISPATCH(from_f16)(halves, static_cast<float*>(y), n);
  } else {
    throw UsageError(std::string("convert: ") + to_string(from) + " to " + to_string(to),
                     "one of the two is f32, the other f32, bf16 or f16");
  }
}

void round_elements(const float* x, DType type, float* y, std::size_t n) {
  std::array<std::uint16_t, 1024> halves;
  for (std::size_t at = 0; at < n; at += halves.size()) {
    const std::size_t count = std::min(halves.size(), n - at);
    if (type == DType::f32) {
      convert_elements(x + at, type, y + at, type, count);
      continue;
    }
    convert_elements(x + at, DType::f32, halves.data(), type, count);
    convert_elements(halves.data(), type, y + at, DType::f32, count);
  }
}

void cpu::round(Stream& stream, const Tensor& x, DType type) {
  stream.enqueue(
      [x, type] { round_elements(x.as<float>(), type, x.as<float>(), to_size(x.size())); });
}

void cpu::convert(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.enqueue(
      [x, y] { convert_elements(x.data(), x.dtype(), y.data(), y.dtype(), to_size(x.size())); });
}

}  // namespace lockstep::kernels
#endif
