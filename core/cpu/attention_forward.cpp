// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/arguments.h"
#include "core/cpu/attention.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention_forward.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/attention-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

// What the online softmax knows of one query.
struct SoftmaxState {
  float top;  // the largest score so far
  float sum;  // Σ e^(score − top)
};

// scores [kKeyBlock] of one query become e^(score − top), zero from `visible` on; what was summed
// before is brought to the new top.
HWY_INLINE void softmax_round(float* scores, std::size_t visible, SoftmaxState& state, float* y,
                              std::size_t width) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = visible / lanes * lanes;
  const auto seen = hn::FirstN(d, visible - whole);  // of the vector that is seen in part
  const auto lowest = hn::Set(d, -HUGE_VALF);
  auto tops = lowest;
  for (std::size_t i = 0; i < whole; i += lanes) tops = hn::Max(tops, hn::LoadU(d, scores + i));
  if (whole < visible) {
    tops = hn::Max(tops, hn::IfThenElse(seen, hn::LoadU(d, scores + whole), lowest));
  }
  const float block_top = hn::GetLane(hn::MaxOfLanes(d, tops));
  const float top = block_top > state.top ? block_top : state.top;

  const auto shift = hn::Set(d, top);
  auto sums = hn::Zero(d);
  std::size_t i = 0;
  for (; i < whole; i += lanes) {
    const auto e = exponential(d, hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(e, d, scores + i);
    sums = hn::Add(sums, e);
  }
  if (whole < visible) {
    const auto e = exponential(d, hn::Sub(hn::LoadU(d, scores + i), shift));
    const auto kept = hn::IfThenElseZero(seen, e);
    hn::StoreU(kept, d, scores + i);
    sums = hn::Add(sums, kept);
    i += lanes;
  }
  for (; i < kKeyBlock; i += lanes) hn::StoreU(hn::Zero(d), d, scores + i);

  const OneFloat one;
  const float fade = hn::GetLane(exponential(one, hn::Set(one, state.top - top)));
  state.sum = state.sum * fade + hn::GetLane(hn::SumOfLanes(d, sums));
  state.top = top;
  for (std::size_t c = 0; c < width; c += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + c), hn::Set(d, fade)), d, y + c);
  }
}

struct ForwardScratch {
  float* keys;     // [blocks, width, kKeyBlock]
  float* values;   // [T, padded]
  float* queries;  // [kQueryBlock, padded], times the scale
  float* scores;   // [kPanel, kKeyBlock]
  float* y;        // [kQueryBlock, padded]
};

// Queries [begin, begin + count) of one packed head, from 0 up to their last visible key.
void attend(const AttentionArrays& a, const ForwardScratch& s, std::size_t begin, std::size_t count,
            SoftmaxState* states) {
  const std::size_t padded = round_up(a.width, kPadding);
  std::memset(s.y, 0, count * padded * sizeof(float));
  for (std::size_t r = 0; r < count; ++r) states[r] = {.top = -HUGE_VALF, .sum = 0.0F};
  for (std::size_t key = 0; key < begin + count; key += kKeyBlock) {
    const float* keys = s.keys + key * a.width;
    for (std::size_t panel = 0; panel < count; panel += kPanel) {
      const std::size_t rows = count - panel < kPanel ? count - panel : kPanel;
      const std::size_t seen = visible_keys(begin + panel + rows - 1, key);
      if (seen == 0) continue;
      float* y = s.y + panel * padded;
      product(rows, round_up(seen, kPadding), a.width,
              {.data = s.queries + panel * padded, .row = padded, .inner = 1}, keys, kKeyBlock,
              s.scores, kKeyBlock, Into::overwrite);
      for (std::size_t r = 0; r < rows; ++r) {
        float* scores = s.scores + r * kKeyBlock;
        const std::size_t visible = visible_keys(begin + panel + r, key);
        if (visible > 0) {
          softmax_round(scores, visible, states[panel + r], y + r * padded, padded);
        } else {
          std::memset(scores, 0, kKeyBlock * sizeof(float));
        }
      }
      product(rows, padded, seen, {.data = s.scores, .row = kKeyBlock, .inner = 1},
              s.values + key * padded, padded, y, padded, Into::add);
    }
  }
}

void attention_heads(const AttentionArrays& a) {
  const std::size_t model = a.heads * a.width;
  const std::size_t padded = round_up(a.width, kPadding);
  const float scale = 1.0F / std::sqrt(static_cast<float>(a.width));
  ScratchPieces pieces(a.scratch);
  const ForwardScratch s = {.keys = pieces.take(round_up(a.length, kKeyBlock) * a.width),
                            .values = pieces.take(a.length * padded),
                            .queries = pieces.take(kQueryBlock * padded),
                            .scores = pieces.take(kPanel * kKeyBlock),
                            .y = pieces.take(kQueryBlock * padded)};
  SoftmaxState states[kQueryBlock];
  for (std::size_t b = 0; b < a.batch; ++b) {
    for (std::size_t h = 0; h < a.heads; ++h) {
      const float* queries = a.qkv + b * a.length * 3 * model + h * a.width;
      float* y = a.y + b * a.length * model + h * a.width;
      float* log_sum_exp = a.log_sum_exp + (b * a.heads + h) * a.length;
      pack_transposed(queries + model, 3 * model, a.length, a.width, s.keys);
      pack_rows(queries + 2 * model, 3 * model, a.length, a.width, padded, 1.0F, s.values);
      for (std::size_t begin = 0; begin < a.length; begin += kQueryBlock) {
        const std::size_t left = a.length - begin;
        const std::size_t count = left < kQueryBlock ? left : kQueryBlock;
        pack_rows(queries + begin * 3 * model, 3 * model, count, a.width, padded, scale, s.queries);
        attend(a, s, begin, count, states);
        for (std::size_t r = 0; r < count; ++r) {
          const float* from = s.y + r * padded;
          float* to = y + (begin + r) * model;
          const float sum = states[r].sum;
          for_each_vector(a.width, [=](auto d, std::size_t i) HWY_ATTR {
            hn::StoreU(hn::Div(hn::LoadU(d, from + i), hn::Set(d, sum)), d, to + i);
          });
          log_sum_exp[begin + r] = states[r].top + std::log(sum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(attention_heads);
}  // namespace

void cpu::attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                            const Tensor& log_sum_exp, AttentionMath /*math*/) {
  AttentionArrays shape = attention_sizes(qkv, heads);
  stream.enqueue([=]() mutable {
    if (qkv.size() == 0) return;
    const std::size_t padded = round_up(shape.width, kPadding);
    const Tensor scratch(
        qkv.device(),
        {static_cast<std::int64_t>(round_up(shape.length, kKeyBlock) * (shape.width + padded) +
                                   2 * kQueryBlock * padded + kPanel * kKeyBlock + 5 * kPadding)},
        DType::f32);
    shape.qkv = qkv.as<float>();
    shape.y = y.as<float>();
    shape.log_sum_exp = log_sum_exp.as<float>();
    shape.scratch = scratch.as<float>();
    HWY_DYNAMIC_DISPATCH(attention_heads)(shape);
  });
}

}  // namespace lockstep::kernels
#endif
