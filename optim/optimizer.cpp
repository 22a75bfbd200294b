// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/optimizer.h"

#include "lockstep/core/error.h"

namespace lockstep::optim {

void Optimizer::step(Stream& stream, const UpdateScale& scale) {
  update(stream, scale, updates_ + 1);
  for (const ParameterSlice& slice : parameters_) {
    if (slice.is_updated()) slice.write_value(stream);
  }
  ++updates_;
}

void Optimizer::bind(StateDict& state) {
  for (const ParameterSlice& slice : parameters_) slice.bind_master(state);
  bind_rule(state);
}

void Optimizer::read_values() {
  for (const ParameterSlice& slice : parameters_) slice.read_value();
}

void Optimizer::set_updates(std::int64_t updates) {
  if (updates < 0) {
    throw UsageError("optimizer: " + std::to_string(updates) + " updates",
                     "restore the number that updates() gave");
  }
  updates_ = updates;
}

}  // namespace lockstep::optim
