// SPDX-License-Identifier: Apache-2.0
// Twins of the kernels of elementwise.cu, convert.cu and gelu.cu.
#include <cstddef>
#include <cstring>

#include "tests/fakes/cuda/twins.h"

namespace lockstep::cuda {
namespace {

using namespace fake;

void twin_add(const AddArgs& a) {
  on_cpu([&](Stream& s) { kernels::add(s, tensor_at(a.x, {a.n}), tensor_at(a.y, {a.n})); });
}

void twin_add_scaled(const AddScaledArgs& a) {
  on_cpu([&](Stream& s) {
    kernels::add_scaled(s, a.factor, tensor_at(a.x, {a.n}), tensor_at(a.y, {a.n}));
  });
}

void twin_fill_zero(const FillZeroArgs& a) {
  if (!skipped(a.skip)) std::memset(a.x, 0, static_cast<std::size_t>(a.bytes));
}

void twin_copy(const CopyArgs& a) { std::memcpy(a.y, a.x, static_cast<std::size_t>(a.bytes)); }

void twin_add_bias(const AddBiasArgs& a) {
  on_cpu([&](Stream& s) {
    kernels::add_bias(s, tensor_at(a.bias, {a.columns}), tensor_at(a.y, {a.rows, a.columns}));
  });
}

void twin_convert(const ConvertArgs& a) {
  kernels::convert_elements(a.x, type_of(a.from), a.y, type_of(a.to),
                            static_cast<std::size_t>(a.n));
}

void twin_round(const RoundArgs& a) {
  kernels::round_elements(a.x, type_of(a.type), a.x, static_cast<std::size_t>(a.n));
}

void twin_gelu(const GeluArgs& a) {
  on_cpu(
      [&](Stream& s) { kernels::gelu_forward(s, tensor_at(a.x, {a.n}), tensor_at(a.y, {a.n})); });
}

void twin_gelu_backward(const GeluBackwardArgs& a) {
  on_cpu([&](Stream& s) {
    kernels::gelu_backward(s, tensor_at(a.x, {a.n}), tensor_at(a.y_grad, {a.n}),
                           tensor_at(a.x_grad, {a.n}));
  });
}

void twin_bias_gelu(const BiasGeluArgs& a) {
  on_cpu([&](Stream& s) {
    kernels::bias_gelu_forward(s, tensor_at(a.bias, {a.columns}),
                               tensor_at(a.x, {a.rows, a.columns}),
                               tensor_at(a.y, {a.rows, a.columns}));
  });
}

}  // namespace

const Kernel<AddArgs> kAdd = twin("add", twin_add);
const Kernel<AddScaledArgs> kAddScaled = twin("add_scaled", twin_add_scaled);
const Kernel<FillZeroArgs> kFillZero = twin("fill_zero", twin_fill_zero);
const Kernel<CopyArgs> kCopy = twin("copy", twin_copy);
const Kernel<AddBiasArgs> kAddBias = twin("add_bias", twin_add_bias);
const Kernel<ConvertArgs> kConvert = twin("convert", twin_convert);
const Kernel<RoundArgs> kRound = twin("round", twin_round);
const Kernel<GeluArgs> kGelu = twin("gelu", twin_gelu);
const Kernel<GeluBackwardArgs> kGeluBackward = twin("gelu_backward", twin_gelu_backward);
const Kernel<BiasGeluArgs> kBiasGelu = twin("bias_gelu", twin_bias_gelu);

}  // namespace lockstep::cuda
