// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

namespace lockstep::fake {

/// bf16 and f16 by their bits, without the library under test.
inline float float_of(std::uint32_t bits) {
  float value = 0.0F;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float from_bf16(std::uint16_t half) { return float_of(std::uint32_t{half} << 16U); }

inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 64U);
  // To nearest, ties to even.
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

inline float from_f16(std::uint16_t half) {
  const std::uint32_t sign = (std::uint32_t{half} & 0x8000U) << 16U;
  const std::uint32_t rest = std::uint32_t{half} & 0x7FFFU;
  if (rest >= 0x7C00U) return float_of(sign | 0x7F800000U | ((rest & 0x3FFU) << 13U));
  // 2^112 moves f16's exponents, subnormal ones too, to where f32 has them.
  return float_of(sign | bits_of(float_of(rest << 13U) * 0x1p112F));
}

inline std::uint16_t to_f16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t rest = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (rest > 0x7F800000U) {
    half = 0x7E00U;
  } else if (rest >= 0x477FF000U) {  // rounds to 65536 or more
    half = 0x7C00U;
  } else if (rest >= 0x38800000U) {  // normal
    half = (rest - 0x38000000U + 0xFFFU + ((rest >> 13U) & 1U)) >> 13U;
  } else {
    // Subnormal: adding 0.5 lets the hardware round at bit 2^-24, ties to even.
    half = bits_of(float_of(rest) + 0.5F) - bits_of(0.5F);
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace lockstep::fake
