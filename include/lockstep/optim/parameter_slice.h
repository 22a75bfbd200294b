// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"

namespace lockstep::optim {

/// What an optimizer of this rank updates of one parameter: all of it, or with ZeRO-1 the elements
/// from begin() to end() of its flattening, which may be none.
class ParameterSlice {
 public:
  /// All of it.
  explicit ParameterSlice(Parameter& parameter);
  /// Piece `rank` of those that `edges` cut.
  ParameterSlice(Parameter& parameter, std::vector<std::int64_t> edges, int rank);

  Parameter& parameter() const noexcept { return *parameter_; }
  std::int64_t begin() const { return pieces_.begin(); }
  std::int64_t size() const { return pieces_.end() - pieces_.begin(); }
  /// Whether there is anything to do: some rank has used the parameter, and the slice is not empty.
  bool is_updated() const { return size() > 0 && parameter_->is_used(); }
  /// Views of the value and of the gradient as it is now, [size()].
  Tensor value() const;
  Tensor grad() const;

  /// Zeros in f32 for an optimizer's state: of the parameter's shape if the slice is all of it.
  Tensor make_state() const;
  /// Binds such a tensor under the parameter's name.
  void bind(StateDict& state, StateKind kind, const Tensor& tensor) const;

 private:
  bool is_whole() const { return size() == parameter_->size(); }

  Parameter* parameter_;
  FlatPieces pieces_;
};

/// The slices of this rank, a parameter each, in forward order.
class ParameterSlices {
 public:
  /// Whole parameters.
  ParameterSlices(const Parameters& parameters);  // NOLINT(google-explicit-constructor)
  ParameterSlices(std::initializer_list<Parameter*> parameters)
      : ParameterSlices(Parameters(parameters)) {}
  explicit ParameterSlices(std::vector<ParameterSlice> slices) : slices_(std::move(slices)) {}

  auto begin() const noexcept { return slices_.begin(); }
  auto end() const noexcept { return slices_.end(); }

 private:
  std::vector<ParameterSlice> slices_;
};

}  // namespace lockstep::optim
