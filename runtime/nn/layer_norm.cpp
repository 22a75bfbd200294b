// SPDX-License-Identifier: Apache-2.0
#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/layers.h"

namespace lockstep::nn {

LayerNorm::LayerNorm(Stream& stream, const std::string& name, std::int64_t width, float epsilon)
    : stream_(&stream),
      epsilon_(epsilon),
      weight_(stream.device(), name + ".weight", {width}),
      bias_(stream.device(), name + ".bias", {width}),
      y_(stream.device()),
      mean_(stream.device()),
      rstd_(stream.device()) {}

Tensor LayerNorm::forward(const Tensor& x) {
  x_ = x;
  const std::int64_t rows = x.size() / weight_.size();
  const Tensor& y = y_.get(x.shape());
  kernels::layer_norm_forward(*stream_, x, weight_.value(), bias_.value(), epsilon_, y,
                              mean_.get({rows}), rstd_.get({rows}));
  return y;
}

void LayerNorm::backward(const Tensor& y_grad, const GradientSlot& x_grad) {
  const GradientSlot weight = weight_.next_gradient();
  const GradientSlot bias = bias_.next_gradient();
  if (weight.add != bias.add) {
    throw UsageError(
        "layer norm " + weight_.name() + ": one pass adds, that of its bias overwrites",
        "open the passes of all parameters with the same `add`");
  }
  const std::int64_t rows = x_.size() / weight_.size();
  kernels::layer_norm_backward(*stream_, y_grad, x_, weight_.value(), mean_.get({rows}),
                               rstd_.get({rows}),
                               {.x = x_grad.grad,
                                .weight = weight.grad,
                                .bias = bias.grad,
                                .add_x = x_grad.add,
                                .add_parameters = weight.add});
  const Event written = stream_->record();
  bias_.mark_ready(written);
  weight_.mark_ready(written);
}

void LayerNorm::visit(const std::function<void(Parameter&)>& visitor) {
  visitor(weight_);
  visitor(bias_);
}

}  // namespace lockstep::nn
