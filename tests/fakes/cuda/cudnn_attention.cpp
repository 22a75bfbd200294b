// SPDX-License-Identifier: Apache-2.0
// What stands for cuDNN in a build over the fakes, by what LOCKSTEP_FAKE_CUDNN holds:
//   (nothing)   there is no library
//   agrees      attention as cuDNN rounds it, by our own f32 kernels
//   wrong       the gradients are twice what they should be
//   changes     each forward pass has other bits
//   refuses     a backward pass that the library does not have
#include <cstdlib>
#include <string>

#include "core/cuda/attention.h"
#include "core/cuda/fused_attention.h"
#include "core/cuda/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::cuda {
namespace {

std::string behaviour() {
  const char* const set = std::getenv("LOCKSTEP_FAKE_CUDNN");
  return set == nullptr ? "" : set;
}

Tensor like(Stream& stream, const Tensor& x) { return {stream.device(), x.shape(), DType::f32}; }

Tensor widened(Stream& stream, const Tensor& x) {
  Tensor wide = like(stream, x);
  kernels::cuda::convert(stream, x, wide);
  return wide;
}

class FakeCudnnAttention final : public FusedAttention {
 public:
  explicit FakeCudnnAttention(std::string behaviour) : behaviour_(std::move(behaviour)) {}

  void forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& y,
               const Tensor& log_sum_exp) override {
    const Tensor wide_y = like(stream, y);
    kernels::cuda::own_attention_forward(stream, widened(stream, qkv),
                                         static_cast<int>(shape.heads), wide_y, log_sum_exp,
                                         kernels::AttentionMath::f32);
    if (behaviour_ == "changes") {
      kernels::cuda::add_scaled(stream, 1e-6F * static_cast<float>(++calls_), log_sum_exp,
                                log_sum_exp);
    }
    kernels::cuda::convert(stream, wide_y, y);
  }

  void backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& y,
                const Tensor& y_grad, const Tensor& log_sum_exp, const Tensor& qkv_grad) override {
    if (behaviour_ == "refuses") throw DeviceError("cuDNN: no such plan", "use another");
    const Tensor wide_grad = like(stream, qkv_grad);
    kernels::cuda::own_attention_backward(
        stream, widened(stream, qkv), widened(stream, y), widened(stream, y_grad), log_sum_exp,
        static_cast<int>(shape.heads), wide_grad, kernels::AttentionMath::f32);
    if (behaviour_ == "wrong") kernels::cuda::add(stream, wide_grad, wide_grad);
    kernels::cuda::convert(stream, wide_grad, qkv_grad);
  }

 private:
  std::string behaviour_;
  int calls_ = 0;
};

}  // namespace

FoundAttention find_cudnn() {
  if (behaviour().empty()) return {.name = {}, .reason = "libcudnn.so.9 does not open"};
  return {.name = "cuDNN 9.0.0", .reason = {}};
}

std::unique_ptr<FusedAttention> open_cudnn(Device device) {
  static_cast<void>(device);
  const FoundAttention found = find_cudnn();
  if (found.name.empty()) throw DeviceError(found.reason, "install cuDNN");
  return std::make_unique<FakeCudnnAttention>(behaviour());
}

}  // namespace lockstep::cuda
