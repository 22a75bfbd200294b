// SPDX-License-Identifier: Apache-2.0
// cuDNN of a build without its headers: the same symbols, and what to do about it.
#include "core/cuda/fused_attention.h"
#include "lockstep/core/error.h"

namespace lockstep::cuda {
namespace {

constexpr const char* kReason = "this build has no cuDNN";

}  // namespace

FoundAttention find_cudnn() { return {.name = {}, .reason = kReason}; }

std::unique_ptr<FusedAttention> open_cudnn(Device device) {
  static_cast<void>(device);
  throw DeviceError(kReason, "build where cudnn.h and cudnn_frontend.h are found (docs/gpu.md)");
}

}  // namespace lockstep::cuda
