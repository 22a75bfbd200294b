// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/parameter_slice.h"

#include <utility>

namespace lockstep::optim {

ParameterSlice::ParameterSlice(Parameter& parameter)
    : ParameterSlice(parameter, {0, parameter.size()}, 0) {}

ParameterSlice::ParameterSlice(Parameter& parameter, std::vector<std::int64_t> edges, int rank)
    : parameter_(&parameter),
      pieces_{.shape = parameter.shape(),
              .edges = std::move(edges),
              .rank = static_cast<std::size_t>(rank)} {}

Tensor ParameterSlice::value() const {
  return parameter_->value().reshape({parameter_->size()}).rows(pieces_.begin(), pieces_.end());
}

Tensor ParameterSlice::grad() const {
  return parameter_->grad().reshape({parameter_->size()}).rows(pieces_.begin(), pieces_.end());
}

Tensor ParameterSlice::make_state() const {
  const Device device = parameter_->value().device();
  return Tensor::zeros(device, is_whole() ? parameter_->shape() : Shape{size()}, DType::f32);
}

void ParameterSlice::bind(StateDict& state, StateKind kind, const Tensor& tensor) const {
  std::optional<FlatPieces> pieces;
  if (pieces_.edges.size() > 2) pieces = pieces_;
  state.bind(parameter_->name(), kind, tensor, parameter_->tensor_axis(), std::move(pieces));
}

ParameterSlices::ParameterSlices(const Parameters& parameters) {
  for (Parameter* parameter : parameters) slices_.emplace_back(*parameter);
}

}  // namespace lockstep::optim
