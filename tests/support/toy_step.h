// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/reducer.h"

namespace lockstep::testing_support {

/// Parameters without a model: p0, p1, … of the given sizes.
class ToyModel {
 public:
  explicit ToyModel(const std::vector<std::int64_t>& sizes, DType type = DType::f32) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      owned_.push_back(
          std::make_unique<Parameter>(Device{}, "p" + std::to_string(i), Shape{sizes[i]}, type));
    }
  }
  Parameters parameters() const {
    Parameters all;
    for (const auto& parameter : owned_) all.push_back(parameter.get());
    return all;
  }
  Parameter& operator[](std::size_t i) const { return *owned_[i]; }
  std::size_t size() const { return owned_.size(); }

 private:
  std::vector<std::unique_ptr<Parameter>> owned_;
};

/// The gradient of element `i` of parameter `parameter` in leaf `leaf`: over several decades, so
/// that every order of additions has bits of its own.
inline float toy_gradient(std::int64_t leaf, std::size_t parameter, std::int64_t i) {
  const auto p = static_cast<std::int64_t>(parameter);
  const std::int64_t mixed = (leaf * 7919 + p * 104'729 + i * 1299) % 10'007;
  const int decade = static_cast<int>((leaf * 5 + i + p) % 9) - 4;
  return std::ldexp(static_cast<float>(mixed - 5000) / 3.0F, 3 * decade);
}

/// Queues a kernel that writes `gradient(i)` as a backward pass would, and marks the parameter.
template <typename Gradient>
void give_gradient(Stream& compute, Parameter& parameter, Gradient gradient) {
  const GradientSlot slot = parameter.next_gradient();
  compute.enqueue([slot, gradient] {
    for (std::int64_t i = 0; i < slot.grad.size(); ++i) {
      float& into = slot.grad.template as<float>()[i];
      into = slot.add ? into + gradient(i) : gradient(i);
    }
  });
  parameter.mark_ready(compute.record());
}

/// Forward order 0, 1, …; backward the other way round.
inline void toy_backward(Stream& compute, const ToyModel& model, std::int64_t leaf) {
  for (std::size_t p = model.size(); p-- > 0;) {
    give_gradient(compute, model[p],
                  [leaf, p](std::int64_t i) { return toy_gradient(leaf, p, i); });
  }
}

/// One whole step over all own leaves.
inline StepTotals toy_step(GradientReducer& reducer, Stream& compute, const ToyModel& model) {
  reducer.begin_step();
  for (std::int64_t leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
    reducer.begin_leaf(leaf);
    LeafSums* sums = reducer.leaf_sums();
    compute.enqueue([sums, leaf] {
      *sums = {.loss = std::ldexp(1.0 + 0.1 * static_cast<double>(leaf), static_cast<int>(leaf)),
               .tokens = leaf + 1,
               .non_finite = 0};
    });
    toy_backward(compute, model, leaf);
  }
  return reducer.finish();
}

/// The arena's bytes, for comparisons of bits.
inline std::vector<std::uint32_t> bits_of(const Tensor& tensor) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(tensor.size()));
  if (tensor.size() > 0) std::memcpy(bits.data(), tensor.data(), tensor.bytes());
  return bits;
}

}  // namespace lockstep::testing_support
