// SPDX-License-Identifier: Apache-2.0
// AdamW, LAMB and SGD, element by element: the bits do not depend on where arrays are cut.
#include <optional>

#include "core/arguments.h"
#include "core/cpu/adamw_factors.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/optimizer_steps.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> scaled_gradient(D d, const float* g, float scale, float clip) {
  return hn::Mul(hn::Mul(hn::LoadU(d, g), hn::Set(d, scale)), hn::Set(d, clip));
}

// Both moments of one vector, updated in memory.
template <class D>
struct Moments {
  hn::Vec<D> first;
  hn::Vec<D> root;  // √v̂ + epsilon
};

template <class D>
HWY_INLINE Moments<D> update_moments(D d, hn::Vec<D> gradient, float* m, float* v,
                                     const AdamWFactors& f) {
  const auto first = hn::MulAdd(gradient, hn::Set(d, f.one_minus_beta1),
                                hn::Mul(hn::LoadU(d, m), hn::Set(d, f.beta1)));
  const auto second = hn::MulAdd(hn::Mul(gradient, gradient), hn::Set(d, f.one_minus_beta2),
                                 hn::Mul(hn::LoadU(d, v), hn::Set(d, f.beta2)));
  hn::StoreU(first, d, m);
  hn::StoreU(second, d, v);
  return {first,
          hn::Add(hn::Div(hn::Sqrt(second), hn::Set(d, f.root_scale)), hn::Set(d, f.epsilon))};
}

void adamw_array(float* w, const float* g, float* m, float* v, std::size_t n,
                 const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto weight = hn::LoadU(d, w + i);
    auto gradient = scaled_gradient(d, g + i, f.scale, f.clip);
    if (f.l2 != 0.0F) gradient = hn::MulAdd(hn::Set(d, f.l2), weight, gradient);
    const auto moments = update_moments(d, gradient, m + i, v + i, f);
    const auto decayed = hn::NegMulAdd(hn::Set(d, f.decay), weight, weight);
    const auto update = hn::Mul(hn::Set(d, f.step_size), hn::Div(moments.first, moments.root));
    hn::StoreU(hn::Sub(decayed, update), d, w + i);
  });
}

void lamb_array(const float* w, float* g, float* m, float* v, std::size_t n,
                const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto gradient = scaled_gradient(d, g + i, f.scale, f.clip);
    const auto moments = update_moments(d, gradient, m + i, v + i, f);
    const auto mean = hn::Mul(moments.first, hn::Set(d, f.inverse_correction));
    hn::StoreU(
        hn::MulAdd(hn::Set(d, f.weight_decay), hn::LoadU(d, w + i), hn::Div(mean, moments.root)), d,
        g + i);
  });
}

// `buffer` is null where momentum is 0.
void sgd_array(float* w, const float* g, float* buffer, std::size_t n, const SgdStep& step) {
  const SgdStep s = step;
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto weight = hn::LoadU(d, w + i);
    const auto gradient =
        hn::MulAdd(hn::Set(d, s.weight_decay), weight, scaled_gradient(d, g + i, s.scale, s.clip));
    auto update = gradient;
    if (buffer != nullptr) {
      const auto momentum = hn::Set(d, s.momentum);
      const auto speed =
          s.t == 1 ? gradient : hn::MulAdd(momentum, hn::LoadU(d, buffer + i), gradient);
      hn::StoreU(speed, d, buffer + i);
      update = s.nesterov ? hn::MulAdd(momentum, speed, gradient) : speed;
    }
    hn::StoreU(hn::NegMulAdd(hn::Set(d, s.learning_rate), update, weight), d, w + i);
  });
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(adamw_array);
HWY_EXPORT(lamb_array);
HWY_EXPORT(sgd_array);

// The step as its gate has it; nothing if that is closed.
template <typename Step>
std::optional<Step> gated(Step step) {
  if (step.gate == nullptr) return step;
  if (!step.gate->open) return std::nullopt;
  step.clip = step.gate->clip;
  return step;
}

}  // namespace

void cpu::adamw(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
                AdamWStep step) {
  stream.enqueue([=] {
    const std::optional<AdamWStep> now = gated(step);
    if (!now) return;
    HWY_DYNAMIC_DISPATCH(adamw_array)
    (w.as<float>(), g.as<float>(), m.as<float>(), v.as<float>(), to_size(w.size()),
     factors_of(*now));
  });
}

void cpu::lamb_direction(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m,
                         const Tensor& v, AdamWStep step) {
  stream.enqueue([=] {
    const std::optional<AdamWStep> now = gated(step);
    if (!now) return;
    HWY_DYNAMIC_DISPATCH(lamb_array)
    (w.as<float>(), g.as<float>(), m.as<float>(), v.as<float>(), to_size(w.size()),
     factors_of(*now));
  });
}

void cpu::sgd(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& buffer,
              SgdStep step) {
  const bool with_momentum = step.momentum != 0.0F;
  stream.enqueue([=] {
    const std::optional<SgdStep> now = gated(step);
    if (!now) return;
    HWY_DYNAMIC_DISPATCH(sgd_array)
    (w.as<float>(), g.as<float>(), with_momentum ? buffer.as<float>() : nullptr, to_size(w.size()),
     *now);
  });
}

}  // namespace lockstep::kernels
#endif
