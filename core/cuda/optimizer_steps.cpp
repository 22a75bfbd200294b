// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/adamw_factors.h"
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {
namespace {

gpu::Gate gate_of(const UpdateGate* gate) {
  if (gate == nullptr) return {.clip = nullptr, .open = nullptr};
  return {.clip = &gate->clip, .open = &gate->open};
}

void launch_moments(const gpu::Kernel<gpu::MomentStepArgs>& kernel, Stream& stream, const Tensor& w,
                    const Tensor& g, const Tensor& m, const Tensor& v, const AdamWStep& step) {
  if (w.size() == 0) return;
  launch(kernel, grid_of_elements(w.size()),
         gpu::MomentStepArgs{.w = w.as<float>(),
                             .g = g.as<float>(),
                             .m = m.as<float>(),
                             .v = v.as<float>(),
                             .n = w.size(),
                             .factors = factors_of(step),
                             .gate = gate_of(step.gate)},
         stream);
}

}  // namespace

void adamw(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
           AdamWStep step) {
  launch_moments(gpu::kAdamW, stream, w, g, m, v, step);
}

void lamb_direction(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m,
                    const Tensor& v, AdamWStep step) {
  launch_moments(gpu::kLamb, stream, w, g, m, v, step);
}

void sgd(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& buffer, SgdStep step) {
  if (w.size() == 0) return;
  launch(gpu::kSgd, grid_of_elements(w.size()),
         gpu::SgdArgs{.w = w.as<float>(),
                      .g = g.as<float>(),
                      .buffer = step.momentum == 0.0F ? nullptr : buffer.as<float>(),
                      .n = w.size(),
                      .factors = {.learning_rate = step.learning_rate,
                                  .momentum = step.momentum,
                                  .weight_decay = step.weight_decay,
                                  .scale = step.scale,
                                  .clip = step.clip,
                                  .nesterov = step.nesterov,
                                  .first = step.t == 1},
                      .gate = gate_of(step.gate)},
         stream);
}

}  // namespace lockstep::kernels::cuda
