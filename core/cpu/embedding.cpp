// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "core/cpu/arguments.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels {
namespace {

// Before anything is read or written: half a batch is worse than none.
void check_tokens(const char* kernel, const Tensor& tokens, std::int64_t table_rows) {
  const std::int32_t* values = tokens.as<std::int32_t>();
  const std::int64_t columns = as_matrix(tokens).columns;
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    if (values[i] >= 0 && values[i] < table_rows) continue;
    throw DataError(std::string(kernel) + ": token " + std::to_string(values[i]) + " in row " +
                        std::to_string(i / columns) + ", column " + std::to_string(i % columns) +
                        " is outside the table of " + std::to_string(table_rows) + " rows",
                    "the data was made with another tokeniser: set model.vocab, or pack it again");
  }
}

void check_shapes(const Arguments& arguments, const Tensor& tokens, const Tensor& token_table,
                  const Tensor& position_table, const Tensor& y) {
  arguments.tensor("tokens", tokens, DType::i32);
  arguments.tensor("token table", token_table);
  arguments.tensor("position table", position_table);
  const std::int64_t width = as_matrix(token_table).columns;
  arguments.require(as_matrix(position_table).columns == width,
                    "the tables of tokens and positions differ in width", "both are [rows, C]");
  arguments.require(as_matrix(position_table).rows >= as_matrix(tokens).columns,
                    "the sequences are longer than the table of positions",
                    "shorten them, or raise model.context");
  arguments.sized("y", y, tokens.size() * width);
}

}  // namespace

void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, const Tensor& y) {
  check_shapes(Arguments("embedding_forward", stream), tokens, token_table, position_table, y);
  stream.enqueue([=] {
    const Matrix table = as_matrix(token_table);
    check_tokens("embedding_forward", tokens, table.rows);
    const std::int32_t* token = tokens.as<std::int32_t>();
    const std::int64_t length = as_matrix(tokens).columns;
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      const float* word = token_table.as<float>() + token[i] * table.columns;
      const float* place = position_table.as<float>() + i % length * table.columns;
      float* out = y.as<float>() + i * table.columns;
      for (std::int64_t c = 0; c < table.columns; ++c) out[c] = word[c] + place[c];
    }
  });
}

void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                        const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                        bool add_position) {
  check_shapes(Arguments("embedding_backward", stream), tokens, token_grad, position_grad, y_grad);
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
