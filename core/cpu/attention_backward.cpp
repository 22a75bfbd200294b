// SPDX-License-Identifier: Apache-2.0
// With P = softmax(S) recomputed from log_sum_exp: dV = Pᵀ·dY, dP = dY·Vᵀ, dS = P ∘ (dP − D) where
// D = Σ dY ∘ Y a row, dQ = dS·K·scale, dK = dSᵀ·Q·scale. (Dao et al., FlashAttention, 2022.)
#include <cmath>

#include "core/arguments.h"
#include "core/cpu/attention.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention_backward.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/attention-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

struct BackwardScratch {
  float* keys_transposed;    // [blocks, width, kKeyBlock]
  float* values_transposed;  // [blocks, width, kKeyBlock]
  float* keys;               // [T, padded]
  float* key_grads;          // [T, padded]
  float* value_grads;        // [T, padded]
  float* queries;            // [kQueryBlock, padded], times the scale
  float* y_grads;            // [kQueryBlock, padded]
  float* query_grads;        // [kQueryBlock, padded]
  float* probabilities;      // [kQueryBlock, kKeyBlock]
  float* score_grads;        // [kQueryBlock, kKeyBlock]
  float* row_sums;           // [kQueryBlock] D
};

// scores become probabilities, their gradients become dS; both are zero from `visible` on.
HWY_INLINE void softmax_backward(float* scores, float* grads, std::size_t visible,
                                 float log_sum_exp, float row_sum) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto probability = [=](std::size_t i) HWY_ATTR {
    return exponential(d, hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, log_sum_exp)));
  };
  const auto slope = [=](std::size_t i, auto p) HWY_ATTR {
    return hn::Mul(p, hn::Sub(hn::LoadU(d, grads + i), hn::Set(d, row_sum)));
  };
  std::size_t i = 0;
  for (; i + lanes <= visible; i += lanes) {
    const auto p = probability(i);
    hn::StoreU(p, d, scores + i);
    hn::StoreU(slope(i, p), d, grads + i);
  }
  if (i < visible) {
    const auto seen = hn::FirstN(d, visible - i);
    const auto p = probability(i);
    hn::StoreU(hn::IfThenElseZero(seen, p), d, scores + i);
    hn::StoreU(hn::IfThenElseZero(seen, slope(i, p)), d, grads + i);
    i += lanes;
  }
  for (; i < kKeyBlock; i += lanes) {
    hn::StoreU(hn::Zero(d), d, scores + i);
    hn::StoreU(hn::Zero(d), d, grads + i);
  }
}

// One block of queries against one block of keys. `first` and `count` name the queries.
void backward_block(const AttentionArrays& a, const BackwardScratch& s, std::size_t first,
                    std::size_t count, std::size_t key, const float* log_sum_exp) {
  const std::size_t padded = round_up(a.width, kPadding);
  for (std::size_t panel = 0; panel < count; panel += kPanel) {
    const std::size_t rows = count - panel < kPanel ? count - panel : kPanel;
    const std::size_t seen = visible_keys(first + panel + rows - 1, key);
    if (seen == 0) continue;
    float* p = s.probabilities + panel * kKeyBlock;
    float* g = s.score_grads + panel * kKeyBlock;
    const std::size_t columns = round_up(seen, kPadding);
    product(rows, columns, a.width, {.data = s.queries + panel * padded, .row = padded, .inner = 1},
            s.keys_transposed + key * a.width, kKeyBlock, p, kKeyBlock, Into::overwrite);
    product(rows, columns, a.width, {.data = s.y_grads + panel * padded, .row = padded, .inner = 1},
            s.values_transposed + key * a.width, kKeyBlock, g, kKeyBlock, Into::overwrite);
    for (std::size_t r = 0; r < rows; ++r) {
      softmax_backward(p + r * kKeyBlock, g + r * kKeyBlock, visible_keys(first + panel + r, key),
                       log_sum_exp[panel + r], s.row_sums[panel + r]);
    }
    product(rows, padded, seen, {.data = g, .row = kKeyBlock, .inner = 1}, s.keys + key * padded,
            padded, s.query_grads + panel * padded, padded, Into::add);
  }
  const std::size_t keys = visible_keys(first + count - 1, key);
  for (std::size_t panel = 0; panel < keys; panel += kPanel) {
    const std::size_t rows = keys - panel < kPanel ? keys - panel : kPanel;
    // Earlier queries see none of these keys.
    const std::size_t from = key + panel > first ? key + panel - first : 0;
    const std::size_t at = from * kKeyBlock + panel;
    const std::size_t to = (key + panel) * padded;
    product(rows, padded, count - from,
            {.data = s.probabilities + at, .row = 1, .inner = kKeyBlock}, s.y_grads + from * padded,
            padded, s.value_grads + to, padded, Into::add);
    product(rows, padded, count - from, {.data = s.score_grads + at, .row = 1, .inner = kKeyBlock},
            s.queries + from * padded, padded, s.key_grads + to, padded, Into::add);
  }
}

void store_rows(const float* x, std::size_t rows, std::size_t width, std::size_t padded,
                float scale, float* out, std::size_t stride) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = x + r * padded;
    float* to = out + r * stride;
    for_each_vector(width, [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
    });
  }
}

// All arrays start at the head's first element.
void backward_head(const AttentionArrays& a, const BackwardScratch& s, const float* qkv,
                   const float* y, const float* y_grad, const float* log_sum_exp, float* qkv_grad) {
  const std::size_t model = a.heads * a.width;
  const std::size_t padded = round_up(a.width, kPadding);
  const float scale = 1.0F / std::sqrt(static_cast<float>(a.width));
  pack_transposed(qkv + model, 3 * model, a.length, a.width, s.keys_transposed);
  pack_transposed(qkv + 2 * model, 3 * model, a.length, a.width, s.values_transposed);
  pack_rows(qkv + model, 3 * model, a.length, a.width, padded, 1.0F, s.keys);
  std::memset(s.key_grads, 0, a.length * padded * sizeof(float));
  std::memset(s.value_grads, 0, a.length * padded * sizeof(float));

  for (std::size_t first = 0; first < a.length; first += kQueryBlock) {
    const std::size_t left = a.length - first;
    const std::size_t count = left < kQueryBlock ? left : kQueryBlock;
    pack_rows(qkv + first * 3 * model, 3 * model, count, a.width, padded, scale, s.queries);
    pack_rows(y_grad + first * model, model, count, a.width, padded, 1.0F, s.y_grads);
    std::memset(s.query_grads, 0, count * padded * sizeof(float));
    for (std::size_t r = 0; r < count; ++r) {
      const float* dy = y_grad + (first + r) * model;
      const float* out = y + (first + r) * model;
      s.row_sums[r] = sum_terms(a.width, [=](auto d, std::size_t i) HWY_ATTR {
        return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, out + i));
      });
    }
    for (std::size_t key = 0; key < first + count; key += kKeyBlock) {
      backward_block(a, s, first, count, key, log_sum_exp + first);
    }
    store_rows(s.query_grads, count, a.width, padded, scale, qkv_grad + first * 3 * model,
               3 * model);
  }
  // The packed queries carried the scale.
  store_rows(s.key_grads, a.length, a.width, padded, 1.0F, qkv_grad + model, 3 * model);
  store_rows(s.value_grads, a.length, a.width, padded, 1.0F, qkv_grad + 2 * model, 3 * model);
}

void attention_backward_heads(const AttentionArrays& a) {
  const std::size_t model = a.heads * a.width;
  const std::size_t padded = round_up(a.width, kPadding);
  const std::size_t transposed = round_up(a.length, kKeyBlock) * a.width;
  ScratchPieces pieces(a.scratch);
  const BackwardScratch s = {.keys_transposed = pieces.take(transposed),
                             .values_transposed = pieces.take(transposed),
                             .keys = pieces.take(a.length * padded),
                             .key_grads = pieces.take(a.length * padded),
                             .value_grads = pieces.take(a.length * padded),
                             .queries = pieces.take(kQueryBlock * padded),
                             .y_grads = pieces.take(kQueryBlock * padded),
                             .query_grads = pieces.take(kQueryBlock * padded),
                             .probabilities = pieces.take(kQueryBlock * kKeyBlock),
                             .score_grads = pieces.take(kQueryBlock * kKeyBlock),
                             .row_sums = pieces.take(kQueryBlock)};
  for (std::size_t b = 0; b < a.batch; ++b) {
    for (std::size_t h = 0; h < a.heads; ++h) {
      const std::size_t wide = b * a.length * 3 * model + h * a.width;
      const std::size_t narrow = b * a.length * model + h * a.width;
      backward_head(a, s, a.qkv + wide, a.y + narrow, a.y_grad + narrow,
                    a.log_sum_exp + (b * a.heads + h) * a.length, a.qkv_grad + wide);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(attention_backward_heads);
}  // namespace

void cpu::attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y,
                             const Tensor& y_grad, const Tensor& log_sum_exp, int heads,
                             const Tensor& qkv_grad, AttentionMath /*math*/) {
  AttentionArrays shape = attention_sizes(qkv, heads);
  stream.enqueue([=]() mutable {
    if (qkv.size() == 0) return;
    const std::size_t padded = round_up(shape.width, kPadding);
    const Tensor scratch(
        qkv.device(),
        {static_cast<std::int64_t>(
            round_up(shape.length, kKeyBlock) * (2 * shape.width + 3 * padded) +
            3 * kQueryBlock * padded + 2 * kQueryBlock * kKeyBlock + kQueryBlock + 11 * kPadding)},
        DType::f32);
    shape.qkv = qkv.as<float>();
    shape.y = y.as<float>();
    shape.y_grad = y_grad.as<float>();
    shape.log_sum_exp = log_sum_exp.as<float>();
    shape.qkv_grad = qkv_grad.as<float>();
    shape.scratch = scratch.as<float>();
    HWY_DYNAMIC_DISPATCH(attention_backward_heads)(shape);
  });
}

}  // namespace lockstep::kernels
#endif
