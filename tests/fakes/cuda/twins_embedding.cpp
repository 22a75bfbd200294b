// SPDX-License-Identifier: Apache-2.0
// Twins of the kernels of check_indices.cu and embedding.cu.
#include <algorithm>
#include <numeric>

#include "tests/fakes/cuda/twins.h"

namespace lockstep::cuda {
namespace {

using namespace fake;

void twin_check_indices(const CheckIndicesArgs& a) {
  const std::int32_t* end = a.values + a.n;
  const std::int32_t* first = std::find_if(a.values, end, [&](std::int32_t value) {
    const bool inside = value >= 0 && value < a.limit;
    return !inside && !(a.may_ignore && value == a.ignored);
  });
  *a.skip = first == end ? 0 : 1;
  *a.bad = {};
  if (first != end) *a.bad = {.found = 1, .position = first - a.values, .value = *first};
}

void twin_embedding(const EmbeddingArgs& a) {
  if (skipped(a.skip)) return;
  const std::int64_t named = *std::max_element(a.tokens, a.tokens + a.rows) + 1;
  const Shape shape = {a.rows / a.length, a.length};
  on_cpu([&](Stream& s) {
    kernels::embedding_forward(s, tensor_at(a.tokens, shape, DType::i32),
                               tensor_at(a.token_table, {named, a.columns}, type_of(a.type)),
                               tensor_at(a.position_table, {a.length, a.columns}, type_of(a.type)),
                               tensor_at(a.y, {a.rows, a.columns}));
  });
}

void twin_token_order(const TokenOrderArgs& a) {
  if (skipped(a.skip)) return;
  std::iota(a.order, a.order + a.rows, 0);
  std::stable_sort(a.order, a.order + a.rows, [&](std::int32_t left, std::int32_t right) {
    return a.tokens[left] < a.tokens[right];
  });
}

void twin_token_gradient(const TokenGradientArgs& a) {
  if (skipped(a.skip)) return;
  for (std::int64_t place = 0; place < a.rows; ++place) {
    const std::int64_t row = a.order[place];
    const float* in = a.y_grad + row * a.columns;
    float* out = a.token_grad + a.tokens[row] * a.columns;
    for (std::int64_t column = 0; column < a.columns; ++column) out[column] += in[column];
  }
}

void twin_position_gradient(const PositionGradientArgs& a) {
  if (skipped(a.skip)) return;
  const std::int64_t size = a.length * a.columns;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t i = 0; i < size; ++i) a.position_grad[i] += a.y_grad[b * size + i];
  }
}

}  // namespace

const Kernel<CheckIndicesArgs> kCheckIndices = twin("check_indices", twin_check_indices);
const Kernel<EmbeddingArgs> kEmbedding = twin("embedding", twin_embedding);
const Kernel<TokenOrderArgs> kTokenOrder = twin("token_order", twin_token_order);
const Kernel<TokenGradientArgs> kTokenGradient = twin("token_gradient", twin_token_gradient);
const Kernel<PositionGradientArgs> kPositionGradient =
    twin("position_gradient", twin_position_gradient);

}  // namespace lockstep::cuda
