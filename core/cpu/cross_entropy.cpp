// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/arguments.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

// The largest of n ≥ 1 values. A NaN may or may not win: the sum of exponentials shows it anyway.
float largest(const float* x, std::size_t n) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  float top = x[0];
  std::size_t i = 0;
  if (n >= lanes) {
    auto tops = hn::LoadU(d, x);
    for (i = lanes; i + lanes <= n; i += lanes) tops = hn::Max(tops, hn::LoadU(d, x + i));
    top = hn::GetLane(hn::MaxOfLanes(d, tops));
  }
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// x ← e^(x − top) if `keep`; returns the sum in fp64.
template <bool kKeep>
HWY_INLINE double exponentials(float* x, std::size_t n, float top) {
  const Floats d;
  const hn::Half<Floats> half;
  const Doubles wide;
  const std::size_t lanes = hn::Lanes(d);
  auto low = hn::Zero(wide);
  auto high = hn::Zero(wide);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto e = exponential(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, top)));
    if (kKeep) hn::StoreU(e, d, x + i);
    low = hn::Add(low, hn::PromoteTo(wide, hn::LowerHalf(half, e)));
    high = hn::Add(high, hn::PromoteTo(wide, hn::UpperHalf(half, e)));
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(low, high)));
  for (; i < n; ++i) {
    const OneFloat one;
    const auto e = exponential(one, hn::Sub(hn::LoadU(one, x + i), hn::Set(one, top)));
    if (kKeep) hn::StoreU(e, one, x + i);
    sum += static_cast<double>(hn::GetLane(e));
  }
  return sum;
}

double exponentials_kept(float* x, std::size_t n, float top) {
  return exponentials<true>(x, n, top);
}
double exponentials_summed(float* x, std::size_t n, float top) {
  return exponentials<false>(x, n, top);
}

// Σ (x − top) in fp64.
double sum_below(const float* x, std::size_t n, float top) {
  const Doubles d;
  const HalfFloats half;
  const std::size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, static_cast<double>(top));
  auto sums = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sums = hn::Add(sums, hn::Sub(hn::PromoteTo(d, hn::LoadU(half, x + i)), shift));
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) - static_cast<double>(top);
  return sum;
}

// x ← x·factor − shift.
void scale_and_shift(float* x, std::size_t n, float factor, float shift) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::MulSub(hn::LoadU(d, x + i), hn::Set(d, factor), hn::Set(d, shift)), d, x + i);
  });
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(largest);
HWY_EXPORT(exponentials_kept);
HWY_EXPORT(exponentials_summed);
HWY_EXPORT(sum_below);
HWY_EXPORT(scale_and_shift);

enum class Gradient : std::uint8_t { none, in_place };

// Before any logit is replaced, so that a bad batch leaves them whole.
void check_targets(const Tensor& targets, std::int64_t vocabulary) {
  const std::int32_t* values = targets.as<std::int32_t>();
  for (std::int64_t row = 0; row < targets.size(); ++row) {
    const std::int32_t value = values[row];
    if (value == kIgnoredTarget || (value >= 0 && value < vocabulary)) continue;
    refuse_target(value, row, vocabulary);
  }
}

// The loss of one row, whose logits become its gradient on request.
//
// With z = x − max x: loss = log Σeᶻ − (1 − s)·z[target] − s·mean(z), and the gradient is softmax
// minus the target's distribution. All but the exponentials is fp64: the loss is a small difference
// of larger terms.
float row_loss(float* x, std::size_t vocabulary, std::int32_t target,
               const CrossEntropyOptions& options, Gradient gradient) {
  const float top = HWY_DYNAMIC_DISPATCH(largest)(x, vocabulary);
  const double at_target = static_cast<double>(x[target]) - static_cast<double>(top);
  const double mass = options.smoothing;
  const double mean =
      options.smoothing == 0.0F
          ? 0.0
          : HWY_DYNAMIC_DISPATCH(sum_below)(x, vocabulary, top) / static_cast<double>(vocabulary);
  const double sum = gradient == Gradient::in_place
                         ? HWY_DYNAMIC_DISPATCH(exponentials_kept)(x, vocabulary, top)
                         : HWY_DYNAMIC_DISPATCH(exponentials_summed)(x, vocabulary, top);
  if (gradient == Gradient::in_place) {
    const double probability = static_cast<double>(x[target]) / sum;
    const double scale = options.gradient_scale;
    const double everywhere = mass / static_cast<double>(vocabulary);
    HWY_DYNAMIC_DISPATCH(scale_and_shift)
    (x, vocabulary, static_cast<float>(scale / sum), static_cast<float>(scale * everywhere));
    x[target] = static_cast<float>(scale * (probability - (1.0 - mass) - everywhere));
  }
  double loss = std::log(sum) - (1.0 - mass) * at_target;
  if (options.smoothing != 0.0F) loss -= mass * mean;
  return static_cast<float>(loss);
}

LossSums sum_rows(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options,
                  Gradient gradient) {
  check_targets(targets, options.vocabulary);
  const std::size_t columns = to_size(as_matrix(logits).columns);
  const std::size_t vocabulary = to_size(options.vocabulary);
  const std::int32_t* target = targets.as<std::int32_t>();
  LossSums sums;
  for (std::size_t row = 0; row < to_size(targets.size()); ++row) {
    float* x = logits.as<float>() + row * columns;
    const bool ignored = target[row] == kIgnoredTarget;
    if (!ignored) {
      const float loss = row_loss(x, vocabulary, target[row], options, gradient);
      sums.loss += static_cast<double>(loss);
      sums.tokens += 1;
      if (!std::isfinite(loss)) sums.non_finite += 1;
    }
    if (gradient == Gradient::in_place) {
      for (std::size_t i = ignored ? 0 : vocabulary; i < columns; ++i) x[i] = 0.0F;
    }
  }
  return sums;
}

}  // namespace

void cpu::cross_entropy(Stream& stream, const Tensor& logits_to_gradient, const Tensor& targets,
                        CrossEntropyOptions options, LossSums* sums) {
  stream.enqueue(
      [=] { *sums = sum_rows(logits_to_gradient, targets, options, Gradient::in_place); });
}

void cpu::cross_entropy_loss(Stream& stream, const Tensor& logits, const Tensor& targets,
                             CrossEntropyOptions options, LossSums* sums) {
  stream.enqueue([=] { *sums = sum_rows(logits, targets, options, Gradient::none); });
}

}  // namespace lockstep::kernels
#endif
