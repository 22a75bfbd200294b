// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/module.h"

namespace lockstep::nn {

const Tensor& Buffer::get(const Shape& shape) {
  if (view_.defined() && view_.shape() == shape) return view_;
  const std::int64_t size = elements_of(shape);
  if (size > storage_.size() || !storage_.defined()) {
    view_ = {};  // lets go of the old memory before the new is taken
    storage_ = {};
    storage_ = Tensor(device_, {size}, dtype_);
  }
  view_ = storage_.rows(0, size).reshape(shape);
  return view_;
}

Parameters Module::parameters() {
  Parameters all;
  visit([&](Parameter& parameter) { all.push_back(&parameter); });
  return all;
}

void Module::bind(StateDict& state) {
  visit([&](Parameter& parameter) {
    state.bind(parameter.name(), StateKind::param, parameter.value(), parameter.tensor_axis());
  });
}

}  // namespace lockstep::nn
