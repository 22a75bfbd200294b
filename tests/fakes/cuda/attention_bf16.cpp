// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/attention_bf16.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/fakes/cuda/elements.h"

namespace lockstep::fake {
namespace {

using cuda::AttentionBackwardArgs;
using cuda::AttentionSizes;

float rounded(float value) { return from_bf16(to_bf16(value)); }

// Where one head lies: row t of a part (query, key or value) of an array of `parts` such.
struct Head {
  Head(const AttentionSizes& sizes, std::int64_t batch, std::int64_t head)
      : length(sizes.length),
        width(sizes.width),
        model(std::int64_t{1} * sizes.heads * sizes.width),
        first_row(batch * sizes.length),
        column(head * sizes.width),
        first_sum((batch * sizes.heads + head) * sizes.length) {}
  std::int64_t at(std::int64_t t, std::int64_t part, std::int64_t parts) const {
    return ((first_row + t) * parts + part) * model + column;
  }
  std::int64_t length;
  std::int64_t width;
  std::int64_t model;
  std::int64_t first_row;
  std::int64_t column;
  std::int64_t first_sum;  // of log_sum_exp and row_sums
};

template <typename Function>
void for_each_head(const AttentionSizes& sizes, const Function& function) {
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) function(Head(sizes, b, h));
  }
}

// The head's rows [T, width] of a part, `factor` times, in bf16.
std::vector<float> rows_of(const Head& head, const float* x, std::int64_t part, std::int64_t parts,
                           float factor) {
  std::vector<float> rows(static_cast<std::size_t>(head.length * head.width));
  float* out = rows.data();
  for (std::int64_t t = 0; t < head.length; ++t) {
    const float* from = x + head.at(t, part, parts);
    out = std::transform(from, from + head.width, out,
                         [factor](float value) { return rounded(value * factor); });
  }
  return rows;
}

struct Rows {
  const std::vector<float>& values;
  std::int64_t width;
  const float* operator[](std::int64_t t) const { return values.data() + t * width; }
};

float product(const float* a, const float* b, std::int64_t width) {
  float sum = 0.0F;
  for (std::int64_t c = 0; c < width; ++c) sum += a[c] * b[c];
  return sum;
}

void add_scaled(float factor, const float* x, std::int64_t width, float* sums) {
  for (std::int64_t c = 0; c < width; ++c) sums[c] += factor * x[c];
}

// One query's row of y, and its log Σ e^score.
float attend(const float* query, const Rows& keys, const Rows& values, std::int64_t last,
             float* y) {
  const std::int64_t width = keys.width;
  std::fill(y, y + width, 0.0F);
  float top = -HUGE_VALF;
  float sum = 0.0F;
  for (std::int64_t first = 0; first <= last; first += cuda::kAttentionTile) {
    const std::int64_t count = std::min<std::int64_t>(cuda::kAttentionTile, last + 1 - first);
    float scores[cuda::kAttentionTile];
    float tile_top = top;
    for (std::int64_t i = 0; i < count; ++i) {
      scores[i] = product(query, keys[first + i], width);
      tile_top = std::max(tile_top, scores[i]);
    }
    const float fade = std::exp(top - tile_top);
    top = tile_top;
    sum *= fade;
    std::transform(y, y + width, y, [fade](float value) { return value * fade; });
    for (std::int64_t i = 0; i < count; ++i) {
      const float weight = std::exp(scores[i] - top);
      sum += weight;  // as it is; only the product reads it rounded
      add_scaled(rounded(weight), values[first + i], width, y);
    }
  }
  const float factor = 1.0F / sum;
  std::transform(y, y + width, y, [factor](float value) { return value * factor; });
  return top + std::log(sum);
}

// What both passes of backward need of one head.
struct BackwardHead {
  BackwardHead(const Head& place, const AttentionBackwardArgs& args)
      : head(place),
        queries(rows_of(head, args.qkv, 0, 3, args.sizes.scale)),
        keys(rows_of(head, args.qkv, 1, 3, 1.0F)),
        values(rows_of(head, args.qkv, 2, 3, 1.0F)),
        y_grads(rows_of(head, args.y_grad, 0, 1, 1.0F)),
        log_sum_exp(args.log_sum_exp + head.first_sum),
        row_sums(args.row_sums + head.first_sum) {}

  Rows rows(const std::vector<float>& of) const { return {of, head.width}; }
  float probability(std::int64_t query, std::int64_t key) const {
    return std::exp(product(rows(queries)[query], rows(keys)[key], head.width) -
                    log_sum_exp[query]);
  }
  float score_grad(std::int64_t query, std::int64_t key, float probability) const {
    const float grad = product(rows(y_grads)[query], rows(values)[key], head.width);
    return probability * (grad - row_sums[query]);
  }

  Head head;
  std::vector<float> queries;  // times the scale
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> y_grads;
  const float* log_sum_exp;
  const float* row_sums;
};

}  // namespace

void attention_forward_bf16(const cuda::AttentionForwardArgs& args) {
  for_each_head(args.sizes, [&](const Head& head) {
    const auto queries = rows_of(head, args.qkv, 0, 3, args.sizes.scale);
    const auto keys = rows_of(head, args.qkv, 1, 3, 1.0F);
    const auto values = rows_of(head, args.qkv, 2, 3, 1.0F);
    for (std::int64_t t = 0; t < head.length; ++t) {
      args.log_sum_exp[head.first_sum + t] =
          attend(Rows{queries, head.width}[t], {keys, head.width}, {values, head.width}, t,
                 args.y + head.at(t, 0, 1));
    }
  });
}

void attention_backward_keys_bf16(const AttentionBackwardArgs& args) {
  for_each_head(args.sizes, [&](const Head& place) {
    const BackwardHead of(place, args);
    for (std::int64_t key = 0; key < place.length; ++key) {
      float* key_grad = args.qkv_grad + place.at(key, 1, 3);
      float* value_grad = args.qkv_grad + place.at(key, 2, 3);
      std::fill(key_grad, key_grad + place.width, 0.0F);
      std::fill(value_grad, value_grad + place.width, 0.0F);
      for (std::int64_t query = key; query < place.length; ++query) {
        const float probability = of.probability(query, key);
        add_scaled(rounded(probability), of.rows(of.y_grads)[query], place.width, value_grad);
        add_scaled(rounded(of.score_grad(query, key, probability)), of.rows(of.queries)[query],
                   place.width, key_grad);
      }
    }
  });
}

void attention_backward_queries_bf16(const AttentionBackwardArgs& args) {
  for_each_head(args.sizes, [&](const Head& place) {
    const BackwardHead of(place, args);
    for (std::int64_t query = 0; query < place.length; ++query) {
      float* grad = args.qkv_grad + place.at(query, 0, 3);
      std::fill(grad, grad + place.width, 0.0F);
      for (std::int64_t key = 0; key <= query; ++key) {
        add_scaled(rounded(of.score_grad(query, key, of.probability(query, key))),
                   of.rows(of.keys)[key], place.width, grad);
      }
      std::transform(grad, grad + place.width, grad,
                     [&](float value) { return value * args.sizes.scale; });
    }
  });
}

}  // namespace lockstep::fake
