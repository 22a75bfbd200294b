// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/simd_targets.h"
#include "core/kernels.h"
#include "hwy/highway.h"

namespace lockstep::testing_support {

/// A test of kernels on one of the instruction sets that this machine has.
class KernelTest : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }
  Stream stream_{Device{}};

 private:
  // 0: all of them.
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string instruction_set_name(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

#define LOCKSTEP_ON_EVERY_INSTRUCTION_SET(suite)                                              \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           instruction_set_name)

/// Without fused multiply-adds (SSE4) the CPU's kernels round twice where others round once.
inline bool cpu_fuses() { return std::string(kernels::instruction_set()) != "SSE4"; }

using Values = std::vector<double>;

inline std::size_t count_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.size());
}

inline Tensor tensor_of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor(Device{}, shape, DType::f32);
  EXPECT_EQ(count_of(tensor), values.size());
  std::copy(values.begin(), values.end(), tensor.as<float>());
  return tensor;
}

inline Tensor indices_of(const Shape& shape, const std::vector<std::int32_t>& values) {
  Tensor tensor(Device{}, shape, DType::i32);
  EXPECT_EQ(count_of(tensor), values.size());
  std::copy(values.begin(), values.end(), tensor.as<std::int32_t>());
  return tensor;
}

inline Tensor random_tensor(const Shape& shape, unsigned seed, double scale = 1.0) {
  std::mt19937 engine(seed);
  std::vector<float> values(static_cast<std::size_t>(elements_of(shape)));
  for (float& value : values) {
    value = static_cast<float>(scale * (static_cast<double>(engine()) / 2147483648.0 - 1.0));
  }
  return tensor_of(shape, values);
}

/// Memory that a kernel must overwrite whole.
inline Tensor nan_tensor(const Shape& shape) {
  Tensor tensor(Device{}, shape, DType::f32);
  std::fill_n(tensor.as<float>(), tensor.size(), std::nanf(""));
  return tensor;
}

/// The same values in memory that is aligned to nothing but an element.
inline Tensor unaligned_copy(const Tensor& tensor) {
  const auto memory = std::make_shared<std::vector<std::uint64_t>>(count_of(tensor) + 2);
  auto* data = reinterpret_cast<std::uint32_t*>(memory->data()) + 1;
  Tensor copy = Tensor::borrow(data, tensor.shape(), tensor.dtype(), Device{}, memory);
  std::memcpy(copy.data(), tensor.data(), tensor.bytes());
  return copy;
}

inline Values values_of(const Tensor& tensor) {
  return {tensor.as<float>(), tensor.as<float>() + tensor.size()};
}

/// |actual − wanted| ≤ tolerance · max(1, largest |wanted|), element by element.
inline void expect_close(const Tensor& actual, const Values& wanted, double tolerance,
                         const std::string& what = "") {
  ASSERT_EQ(count_of(actual), wanted.size()) << what;
  double scale = 1.0;
  for (const double value : wanted) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double value = static_cast<double>(actual.as<float>()[i]);
    ASSERT_LE(std::abs(value - wanted[i]), tolerance * scale)
        << what << " at " << i << ": " << value << " instead of " << wanted[i];
  }
}

/// Of central differences in f64.
inline constexpr double kStep = 1e-5;

/// The gradient of `loss` at `x` by central differences, in f64.
inline Values slope_of(const std::function<double(const Values&)>& loss, const Values& x) {
  Values slope(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    Values moved = x;
    moved[i] = x[i] + kStep;
    const double above = loss(moved);
    moved[i] = x[i] - kStep;
    slope[i] = (above - loss(moved)) / (2.0 * kStep);
  }
  return slope;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace lockstep::testing_support
