// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"

namespace lockstep::optim {

/// What an optimizer of this rank updates of one parameter: all of it, or with ZeRO-1 the elements
/// from begin() on of its flattening, which may be none. A bf16 or f16 parameter has a master in
/// f32, to which small updates are added; its value is the rounded master (Micikevicius et al.,
/// "Mixed precision training", ICLR 2018, section 3.1). Copies share the master.
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
  /// What an update changes, f32 [size()]: the value, or the master where there is one.
  Tensor weights() const;
  /// The gradient as it is now, f32 [size()].
  Tensor grad() const;
  /// The master becomes the value as it is now; the host has written it.
  void read_value() const;
  /// Queues value = the rounded master. Nothing without a master.
  void write_value(Stream& stream) const;

  /// Zeros in f32 for an optimizer's state: of the parameter's shape if the slice is all of it.
  Tensor make_state() const;
  /// Binds such a tensor under the parameter's name.
  void bind(StateDict& state, StateKind kind, const Tensor& tensor) const;
  /// Binds the master, if there is one, as StateKind::master.
  void bind_master(StateDict& state) const;

 private:
  bool is_whole() const { return size() == parameter_->size(); }
  Tensor value() const;

  Parameter* parameter_;
  FlatPieces pieces_;
  Tensor master_;
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
