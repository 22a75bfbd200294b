// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/stream.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

/// One parameter whose gradient a test sets by hand.
class Toy {
 public:
  explicit Toy(const std::vector<float>& values, std::string name = "w")
      : parameter_(Device{}, std::move(name), {static_cast<std::int64_t>(values.size())}) {
    std::copy(values.begin(), values.end(), parameter_.value().as<float>());
  }

  Parameters parameters() { return {&parameter_}; }
  Stream& stream() { return stream_; }

  /// One update with these gradient sums; the parameter's values afterwards.
  std::vector<float> step(Optimizer& optimizer, const std::vector<float>& gradient,
                          const UpdateScale& scale) {
    Tensor grad(Device{}, parameter_.shape(), DType::f32);
    std::copy(gradient.begin(), gradient.end(), grad.as<float>());
    parameter_.begin_pass(grad, false);
    optimizer.step(stream_, scale);
    stream_.synchronize();
    return values();
  }

  std::vector<float> values() const {
    const float* data = parameter_.value().as<float>();
    return {data, data + parameter_.size()};
  }

 private:
  Stream stream_{Device{}};
  Parameter parameter_;
};

/// f32 results against values computed in f64: relative 1e-6.
inline void expect_close(float actual, double expected) {
  EXPECT_NEAR(actual, expected, 1e-6 * std::max(1e-30, std::abs(expected)));
}

}  // namespace lockstep::optim
