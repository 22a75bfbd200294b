// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {

void convert(Stream& stream, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) return copy(stream, x, y);
  if (x.size() == 0) return;
  launch(gpu::kConvert, grid_of_elements(x.size()),
         gpu::ConvertArgs{.x = x.data(),
                          .from = real_of(x.dtype()),
                          .y = y.data(),
                          .to = real_of(y.dtype()),
                          .n = x.size()},
         stream);
}

void round(Stream& stream, const Tensor& x, DType type) {
  if (x.size() == 0 || type == DType::f32) return;
  launch(gpu::kRound, grid_of_elements(x.size()),
         gpu::RoundArgs{.x = x.as<float>(), .type = real_of(type), .n = x.size()}, stream);
}

}  // namespace lockstep::kernels::cuda
