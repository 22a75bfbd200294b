// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/parameter.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {

Parameter::Parameter(Device device, std::string name, Shape shape, DType dtype,
                     Placement tensor_axis)
    : name_(std::move(name)), value_(device, std::move(shape), dtype), tensor_axis_(tensor_axis) {}

GradientSlot Parameter::next_gradient() {
  if (!grad_.defined()) {
    throw UsageError("parameter " + name_ + " has no gradient memory",
                     "open a pass first: GradientReducer::begin_leaf or Parameter::begin_pass");
  }
  return {.grad = grad_, .add = std::exchange(add_, true)};
}

void Parameter::begin_pass(Tensor grad, bool add) {
  if (grad.size() != size() || grad.dtype() != DType::f32) {
    throw UsageError("gradient of " + name_ + ": " + to_string(grad.shape()) + " " +
                         to_string(grad.dtype()) + " for a parameter of shape " +
                         to_string(shape()),
                     "gradients are f32 and have the parameter's size");
  }
  grad_ = grad.shape() == shape() ? std::move(grad) : grad.reshape(shape());
  add_ = add;
}

void Parameter::mark_ready(const Event& written) {
  if (hook_) hook_(written);
}

void Parameter::on_ready(std::function<void(const Event& written)> hook) {
  if (hook && hook_) {
    throw UsageError("parameter " + name_ + " already belongs to a reducer",
                     "give each parameter to one GradientReducer at a time");
  }
  hook_ = std::move(hook);
}

Device device_of(const Parameters& parameters) {
  return parameters.empty() ? Device{} : parameters.front()->value().device();
}

}  // namespace lockstep
