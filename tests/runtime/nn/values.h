// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/tensor.h"

namespace lockstep::nn {

inline std::span<float> values_of(const Tensor& tensor) {
  return {tensor.as<float>(), static_cast<std::size_t>(tensor.size())};
}

inline std::vector<float> copy_of(const Tensor& tensor) {
  const auto values = values_of(tensor);
  return {values.begin(), values.end()};
}

inline Tensor tensor_of(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor(Device{}, shape, DType::f32);
  std::copy(values.begin(), values.end(), tensor.as<float>());
  return tensor;
}

inline Tensor tensor_of(const Shape& shape, const std::vector<std::int32_t>& values) {
  Tensor tensor(Device{}, shape, DType::i32);
  std::copy(values.begin(), values.end(), tensor.as<std::int32_t>());
  return tensor;
}

/// Uniform in [-1, 1), the same for the same seed.
inline void fill_random(std::span<float> values, unsigned seed) {
  std::mt19937 generator(seed);
  for (float& value : values) {
    value = static_cast<float>(generator() >> 8) * 0x1p-23F - 1.0F;
  }
}

inline Tensor random_tensor(const Shape& shape, unsigned seed) {
  Tensor tensor(Device{}, shape, DType::f32);
  fill_random(values_of(tensor), seed);
  return tensor;
}

inline Tensor random_tokens(const Shape& shape, std::int32_t vocab, unsigned seed) {
  Tensor tensor(Device{}, shape, DType::i32);
  std::mt19937 generator(seed);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.as<std::int32_t>()[i] =
        static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocab));
  }
  return tensor;
}

}  // namespace lockstep::nn
