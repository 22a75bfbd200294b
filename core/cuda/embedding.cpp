// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/index_check.h"
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {
namespace {

IndexCheck check_tokens(Stream& stream, const Tensor& tokens, const Tensor& token_table) {
  return check_indices(stream, tokens, as_matrix(token_table).rows);
}

// Fails the stream behind the kernels if they met a token outside the table.
void report(Stream& stream, const IndexCheck& check, const char* kernel, const Tensor& tokens,
            const Tensor& token_table) {
  if (check.skip == nullptr) return;
  const std::int64_t length = as_matrix(tokens).columns;
  const std::int64_t rows = as_matrix(token_table).rows;
  stream.enqueue([bad = check.bad, kernel, length, rows] {
    if (bad->found == 0) return;
    refuse_token(kernel, bad->value, bad->position / length, bad->position % length, rows);
  });
}

void fill_zero_unless(Stream& stream, const std::int32_t* skip, const Tensor& x) {
  if (x.size() == 0) return;
  launch(
      gpu::kFillZero, grid_of_elements(x.size()),
      gpu::FillZeroArgs{.x = x.data(), .bytes = static_cast<std::int64_t>(x.bytes()), .skip = skip},
      stream);
}

}  // namespace

void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, const Tensor& y) {
  const IndexCheck check = check_tokens(stream, tokens, token_table);
  const std::int64_t columns = as_matrix(token_table).columns;
  if (y.size() > 0) {
    launch(gpu::kEmbedding, grid_of_rows({.rows = tokens.size(), .columns = columns}),
           gpu::EmbeddingArgs{.tokens = tokens.as<std::int32_t>(),
                              .token_table = token_table.data(),
                              .position_table = position_table.data(),
                              .type = real_of(token_table.dtype()),
                              .y = y.as<float>(),
                              .rows = tokens.size(),
                              .length = as_matrix(tokens).columns,
                              .columns = columns,
                              .skip = check.skip},
           stream);
  }
  report(stream, check, "embedding_forward", tokens, token_table);
}

void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                        const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                        bool add_position) {
  const std::int64_t rows = tokens.size();
  Arguments("embedding_backward", stream)
      .require(rows < (std::int64_t{1} << 30), "more than 2³⁰ tokens", "use a smaller batch.micro");
  const std::int64_t columns = as_matrix(token_grad).columns;
  const IndexCheck check = check_tokens(stream, tokens, token_grad);
  if (!add_token) fill_zero_unless(stream, check.skip, token_grad);
  if (!add_position) fill_zero_unless(stream, check.skip, position_grad);
  if (y_grad.size() > 0) {
    const Tensor order(stream.device(), {rows}, DType::i32);
    launch(gpu::kTokenOrder, grid_of_warps(ceil_div(rows, gpu::kTokenOrderRows)),
           gpu::TokenOrderArgs{.tokens = tokens.as<std::int32_t>(),
                               .order = order.as<std::int32_t>(),
                               .rows = rows,
                               .skip = check.skip},
           stream);
    launch(gpu::kTokenGradient, grid_of_columns(rows, columns),
           gpu::TokenGradientArgs{.tokens = tokens.as<std::int32_t>(),
                                  .order = order.as<std::int32_t>(),
                                  .y_grad = y_grad.as<float>(),
                                  .token_grad = token_grad.as<float>(),
                                  .rows = rows,
                                  .columns = columns,
                                  .skip = check.skip},
           stream);
    const Matrix shape = as_matrix(tokens);
    launch(gpu::kPositionGradient, grid_of_columns(shape.columns, columns),
           gpu::PositionGradientArgs{.y_grad = y_grad.as<float>(),
                                     .position_grad = position_grad.as<float>(),
                                     .batch = shape.rows,
                                     .length = shape.columns,
                                     .columns = columns,
                                     .skip = check.skip},
           stream);
  }
  report(stream, check, "embedding_backward", tokens, token_grad);
}

}  // namespace lockstep::kernels::cuda
