// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "lockstep/core/tensor.h"

namespace lockstep::kernels {

/// The arrays of one attention call, forward or backward; strides in floats.
struct AttentionArrays {
  std::size_t batch;
  std::size_t length;  // T
  std::size_t heads;
  std::size_t width;              // of a head
  const float* qkv = nullptr;     // [B, T, 3C]
  const float* y_grad = nullptr;  // [B, T, C], backward only
  float* y = nullptr;             // [B, T, C]
  float* log_sum_exp = nullptr;   // [B, heads, T]
  float* qkv_grad = nullptr;      // [B, T, 3C], backward only
  float* scratch = nullptr;       // what the kernel's own file says
};

/// The sizes alone are filled in.
AttentionArrays attention_sizes(const Tensor& qkv, int heads);

/// A key block is what one round of the online softmax sees; a query block shares it in cache. Six
/// rows by two vectors fill the registers of AVX2.
inline constexpr std::size_t kKeyBlock = 64;
inline constexpr std::size_t kQueryBlock = 48;
inline constexpr std::size_t kPanel = 6;
/// Rows of scratch are padded with zeros to whole vectors of every instruction set.
inline constexpr std::size_t kPadding = 16;

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace lockstep::kernels
