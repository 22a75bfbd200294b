// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::cuda {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t length = 0;  // T
  std::int64_t heads = 0;
  std::int64_t width = 0;  // of a head; C = heads · width
  // NOLINTNEXTLINE(modernize-use-nullptr): 0 of <=>
  auto operator<=>(const AttentionShape&) const = default;
};

/// Causal attention by a library, for one stream: qkv and qkv_grad [B, T, 3C], y and y_grad [B, T,
/// C], all bf16, log_sum_exp [B, heads, T] f32; scores are scaled by 1/√width. Same shape, same
/// bits.
///
/// Calls by one thread at a time; they return when all is queued. A DeviceError, with nothing
/// queued, for a shape that the library does not have, and where it fails.
class FusedAttention {
 public:
  virtual ~FusedAttention() = default;
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  virtual void forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                       const Tensor& y, const Tensor& log_sum_exp) = 0;
  virtual void backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                        const Tensor& y, const Tensor& y_grad, const Tensor& log_sum_exp,
                        const Tensor& qkv_grad) = 0;

 protected:
  FusedAttention() = default;
};

/// The library's name with its version, e.g. "cuDNN 9.15.1", or why it cannot be used.
struct FoundAttention {
  std::string name;    // empty: none
  std::string reason;  // empty: found
};

// In cudnn_attention.cpp, or cudnn_unavailable.cpp of a build without cuDNN's headers. Any thread.

/// Opens libcudnn at the first call; it stays open.
FoundAttention find_cudnn();
/// For a stream of `device`. Throws DeviceError where find_cudnn() finds none, or where the device
/// cannot be used.
std::unique_ptr<FusedAttention> open_cudnn(Device device);

}  // namespace lockstep::cuda
