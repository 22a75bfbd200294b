// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <limits>

#include "lockstep/core/error.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

constexpr std::int64_t kHalves = 1 << 16;

class KernelConvert : public KernelTest {
 protected:
  Tensor converted(const Tensor& x, DType type) {
    Tensor y(Device{}, x.shape(), type);
    kernels::convert(stream_, x, y);
    stream_.synchronize();
    return y;
  }
};

std::uint16_t* halves_of(const Tensor& tensor) {
  return static_cast<std::uint16_t*>(tensor.data());
}

// The compiler's own type, which the kernel does not use.
std::uint16_t f16_bits(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

// Exact in f64: the neighbour that is nearer, the even one of two.
std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  if (std::isinf(value)) return below;
  const auto above = static_cast<std::uint16_t>(below + 1);
  const auto wide = [](std::uint16_t half) {
    const double sign = (half & 0x8000U) != 0 ? -1.0 : 1.0;
    if ((half & 0x7FFFU) == 0x7F80U) return sign * 0x1p128;  // where infinity stands in the grid
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
  };
  const double to_below = std::abs(static_cast<double>(value) - wide(below));
  const double to_above = std::abs(static_cast<double>(value) - wide(above));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (below & 1U) == 0 ? below : above;
}

TEST_P(KernelConvert, WidensEveryHalfExactlyAndBack) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Tensor all(Device{}, {kHalves}, type);
    for (std::int64_t i = 0; i < kHalves; ++i) halves_of(all)[i] = static_cast<std::uint16_t>(i);
    const Tensor wide = converted(all, DType::f32);
    const Tensor back = converted(wide, type);
    for (std::int64_t i = 0; i < kHalves; ++i) {
      const auto half = static_cast<std::uint16_t>(i);
      const float value = wide.as<float>()[i];
      const float wanted = type == DType::f16
                               ? static_cast<float>(std::bit_cast<_Float16>(half))
                               : std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(value)) << i;
        const auto exponent = static_cast<std::uint16_t>(type == DType::f16 ? 0x7C00 : 0x7F80);
        EXPECT_GT(halves_of(back)[i] & 0x7FFFU, exponent) << i << " is no NaN any more";
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(wanted)) << i;
      ASSERT_EQ(halves_of(back)[i], half);
    }
  }
}

TEST_P(KernelConvert, RoundsToNearestEven) {
  std::vector<float> values = {
      0.0F,     -0.0F,         1.0F,     1.00390625F,   1.01171875F,
      65504.0F, 65519.99F,     65520.0F, -65520.0F,     1e30F,
      6.1e-5F,  5.96e-8F,      2.98e-8F, 2.99e-8F,      1e-30F,
      1e-40F,   3.3895314e38F, 3.39e38F, 3.4028235e38F, std::numeric_limits<float>::infinity()};
  std::mt19937 engine(1);
  while (values.size() < 200'003) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
    if (!std::isnan(value)) values.push_back(value);
    // Where f16 is subnormal or normal, which few random bits are.
    values.push_back(std::ldexp(static_cast<float>(engine()) / 4294967296.0F,
                                static_cast<int>(engine() % 44) - 27));
  }
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor x = unaligned_copy(tensor_of({n}, values));
  const Tensor bf16 = converted(x, DType::bf16);
  const Tensor f16 = converted(x, DType::f16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(halves_of(bf16)[i], bf16_bits(values[i])) << values[i];
    ASSERT_EQ(halves_of(f16)[i], f16_bits(values[i])) << values[i];
  }
}

TEST_P(KernelConvert, LeavesNothingUnwrittenAtAnyLength) {
  for (std::int64_t n = 0; n < 40; ++n) {
    const Tensor x = random_tensor({n}, static_cast<unsigned>(n));
    const Tensor there = converted(converted(x, DType::bf16), DType::f32);
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(there.as<float>()[i], x.as<float>()[i], 0x1p-8) << n;
    }
  }
}

TEST_P(KernelConvert, RefusesOtherTypes) {
  const Tensor x = random_tensor({4}, 1);
  EXPECT_THROW(kernels::convert(stream_, x, Tensor(Device{}, {4}, DType::i32)), UsageError);
  EXPECT_THROW(kernels::convert(stream_, x, Tensor(Device{}, {3}, DType::bf16)), UsageError);
  EXPECT_THROW(kernels::convert(stream_, Tensor(Device{}, {4}, DType::f16),
                                Tensor(Device{}, {4}, DType::bf16)),
               UsageError);
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelConvert);

}  // namespace
}  // namespace lockstep
