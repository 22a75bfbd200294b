// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "core/arguments.h"
#include "core/kernel_table.h"

namespace lockstep::kernels {
namespace {

// Before anything is read or written: half a batch is worse than none.
void check_tokens(const char* kernel, const Tensor& tokens, std::int64_t table_rows) {
  const std::int32_t* values = tokens.as<std::int32_t>();
  const std::int64_t columns = as_matrix(tokens).columns;
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    if (values[i] >= 0 && values[i] < table_rows) continue;
    refuse_token(kernel, values[i], i / columns, i % columns, table_rows);
  }
}

// Row `row` of a [rows, C] table in f32: where it lies, or in `widened`.
const float* row_of(const Tensor& table, std::int64_t row, std::vector<float>& widened) {
  const std::int64_t columns = as_matrix(table).columns;
  if (table.dtype() == DType::f32) return table.as<float>() + row * columns;
  widened.resize(to_size(columns));
  const auto* halves = static_cast<const std::uint16_t*>(table.data()) + row * columns;
  convert_elements(halves, table.dtype(), widened.data(), DType::f32, widened.size());
  return widened.data();
}

}  // namespace

void cpu::embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                            const Tensor& position_table, const Tensor& y) {
  stream.enqueue([=] {
    const Matrix table = as_matrix(token_table);
    check_tokens("embedding_forward", tokens, table.rows);
    const std::int32_t* token = tokens.as<std::int32_t>();
    const std::int64_t length = as_matrix(tokens).columns;
    std::vector<float> word_row;
    std::vector<float> place_row;
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      const float* word = row_of(token_table, token[i], word_row);
      const float* place = row_of(position_table, i % length, place_row);
      float* out = y.as<float>() + i * table.columns;
      for (std::int64_t c = 0; c < table.columns; ++c) out[c] = word[c] + place[c];
    }
  });
}

void cpu::embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                             const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                             bool add_position) {
  stream.enqueue([=] {
    const Matrix table = as_matrix(token_grad);
    check_tokens("embedding_backward", tokens, table.rows);
    if (!add_token && token_grad.size() > 0) std::memset(token_grad.data(), 0, token_grad.bytes());
    if (!add_position && position_grad.size() > 0) {
      std::memset(position_grad.data(), 0, position_grad.bytes());
    }
    const std::int32_t* token = tokens.as<std::int32_t>();
    const std::int64_t length = as_matrix(tokens).columns;
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      const float* in = y_grad.as<float>() + i * table.columns;
      float* word = token_grad.as<float>() + token[i] * table.columns;
      float* place = position_grad.as<float>() + i % length * table.columns;
      for (std::int64_t c = 0; c < table.columns; ++c) word[c] += in[c];
      for (std::int64_t c = 0; c < table.columns; ++c) place[c] += in[c];
    }
  });
}

}  // namespace lockstep::kernels
