// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/parameter_slice.h"

#include <utility>

#include "core/copy.h"
#include "core/kernels.h"

namespace lockstep::optim {

ParameterSlice::ParameterSlice(Parameter& parameter)
    : ParameterSlice(parameter, {0, parameter.size()}, 0) {}

ParameterSlice::ParameterSlice(Parameter& parameter, std::vector<std::int64_t> edges, int rank)
    : parameter_(&parameter),
      pieces_{.shape = parameter.shape(),
              .edges = std::move(edges),
              .rank = static_cast<std::size_t>(rank)} {
  if (!is_half(parameter.value().dtype())) return;
  master_ = make_state();
  read_value();
}

Tensor ParameterSlice::value() const {
  return parameter_->value().reshape({parameter_->size()}).rows(pieces_.begin(), pieces_.end());
}

Tensor ParameterSlice::weights() const {
  return master_.defined() ? master_.reshape({size()}) : value();
}

void ParameterSlice::read_value() const {
  if (!master_.defined()) return;
  const Tensor half = on_host(value());
  const Tensor wide(Device{}, master_.shape(), DType::f32);
  kernels::convert_elements(half.data(), half.dtype(), wide.data(), DType::f32,
                            static_cast<std::size_t>(size()));
  copy_now(wide, master_);
}

void ParameterSlice::write_value(Stream& stream) const {
  if (master_.defined()) kernels::convert(stream, master_, value());
}

void ParameterSlice::bind_master(StateDict& state) const {
  if (master_.defined()) bind(state, StateKind::master, master_);
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
