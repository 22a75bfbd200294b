// SPDX-License-Identifier: Apache-2.0
#include "core/arguments.h"

#include <utility>

#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels {

Matrix as_matrix(const Tensor& tensor) noexcept {
  if (tensor.shape().empty()) return {.rows = tensor.size(), .columns = 1};
  Matrix matrix{.rows = 1, .columns = tensor.shape().back()};
  for (std::size_t i = 0; i + 1 < tensor.shape().size(); ++i) matrix.rows *= tensor.shape()[i];
  return matrix;
}

Arguments::Arguments(const char* kernel, const Stream& stream)
    : kernel_(kernel), device_(stream.device()) {}

void Arguments::tensor(const char* name, const Tensor& tensor, DType dtype) const {
  const std::string argument(name);
  if (!tensor.defined() && (tensor.shape().empty() || tensor.size() > 0)) {
    fail(argument + " is undefined", "give it memory first");
  }
  if (tensor.dtype() != dtype) {
    fail(argument + " is " + to_string(tensor.dtype()) + ", not " + to_string(dtype),
         "convert it, or pass the tensor that was meant");
  }
  if (tensor.device() != device_) {
    fail(
        argument + " is on " + to_string(tensor.device()) + ", the stream on " + to_string(device_),
        "use a stream of the tensor's device");
  }
}

void Arguments::sized(const char* name, const Tensor& tensor, std::int64_t size,
                      DType dtype) const {
  this->tensor(name, tensor, dtype);
  if (tensor.size() != size) {
    fail(std::string(name) + " has shape " + to_string(tensor.shape()) + ", " +
             std::to_string(tensor.size()) + " elements instead of " + std::to_string(size),
         "compare the shapes with the comment in core/kernels.h");
  }
}

void Arguments::require(bool holds, const char* problem, const char* hint) const {
  if (!holds) fail(problem, hint);
}

void Arguments::fail(const std::string& problem, const std::string& hint) const {
  throw UsageError(std::string(kernel_) + ": " + problem, hint);
}

void check_gemm(const Arguments& arguments, const Tensor& a, const Tensor& b, const Tensor& c,
                const GemmOptions& options) {
  const DType type = is_half(a.dtype()) ? a.dtype() : DType::f32;
  arguments.tensor("a", a, type);
  arguments.tensor("b", b, type);
  arguments.tensor("c", c);
  Matrix left = as_matrix(a);
  Matrix right = as_matrix(b);
  if (options.transpose_a) std::swap(left.rows, left.columns);
  if (options.transpose_b) std::swap(right.rows, right.columns);
  const Matrix result = as_matrix(c);
  if (left.columns == right.rows && result.rows == left.rows && result.columns == right.columns) {
    return;
  }
  throw UsageError("gemm: op(a) [" + std::to_string(left.rows) + ", " +
                       std::to_string(left.columns) + "] by op(b) [" + std::to_string(right.rows) +
                       ", " + std::to_string(right.columns) + "] does not give c " +
                       to_string(c.shape()),
                   "op(a) is [M, K], op(b) [K, N], c [M, N]");
}

void check_layer_norm(const Arguments& arguments, const Tensor& x, const Tensor& weight,
                      const Tensor& mean, const Tensor& rstd) {
  arguments.tensor("x", x);
  const Matrix shape = as_matrix(x);
  arguments.sized("weight", weight, shape.columns);
  arguments.sized("mean", mean, shape.rows);
  arguments.sized("rstd", rstd, shape.rows);
}

void check_attention(const Arguments& arguments, const Tensor& qkv, int heads, const Tensor& y,
                     const Tensor& log_sum_exp) {
  arguments.tensor("qkv", qkv);
  arguments.require(qkv.shape().size() == 3 && qkv.dim(2) % 3 == 0, "qkv is not [B, T, 3C]",
                    "query, key and value lie side by side in the last dimension");
  const std::int64_t model = qkv.dim(2) / 3;
  arguments.require(heads > 0 && model % heads == 0, "heads do not divide C",
                    "choose model.heads so that it divides model.hidden");
  arguments.sized("y", y, qkv.dim(0) * qkv.dim(1) * model);
  arguments.sized("log_sum_exp", log_sum_exp, qkv.dim(0) * heads * qkv.dim(1));
}

void check_embedding(const Arguments& arguments, const Tensor& tokens, const Tensor& token_table,
                     const Tensor& position_table, const Tensor& y, DType table_type) {
  arguments.tensor("tokens", tokens, DType::i32);
  arguments.tensor("token table", token_table, table_type);
  arguments.tensor("position table", position_table, table_type);
  const std::int64_t width = as_matrix(token_table).columns;
  arguments.require(as_matrix(position_table).columns == width,
                    "the tables of tokens and positions differ in width", "both are [rows, C]");
  arguments.require(as_matrix(position_table).rows >= as_matrix(tokens).columns,
                    "the sequences are longer than the table of positions",
                    "shorten them, or raise model.context");
  arguments.sized("y", y, tokens.size() * width);
}

void check_cross_entropy(const Arguments& arguments, const Tensor& logits, const Tensor& targets,
                         const CrossEntropyOptions& options, const LossSums* sums) {
  arguments.tensor("logits", logits);
  arguments.sized("targets", targets, as_matrix(logits).rows, DType::i32);
  arguments.require(options.vocabulary > 0 && options.vocabulary <= as_matrix(logits).columns,
                    "the vocabulary does not fit the columns of logits",
                    "set options.vocabulary to the real columns, without the padding");
  arguments.require(options.smoothing >= 0.0F && options.smoothing <= 1.0F,
                    "the smoothing is outside [0, 1]", "set loss.smoothing to 0 … 1");
  arguments.require(sums != nullptr, "sums is null", "pass the sums that the stream fills");
}

void check_moments(const Arguments& arguments, const Tensor& w, const Tensor& g, const Tensor& m,
                   const Tensor& v, const AdamWStep& step) {
  arguments.tensor("w", w);
  arguments.sized("g", g, w.size());
  arguments.sized("m", m, w.size());
  arguments.sized("v", v, w.size());
  arguments.require(step.t >= 1, "t is below 1", "t counts updates, the one asked for included");
}

void refuse_token(const char* kernel, std::int64_t token, std::int64_t row, std::int64_t column,
                  std::int64_t table_rows) {
  throw DataError(std::string(kernel) + ": token " + std::to_string(token) + " in row " +
                      std::to_string(row) + ", column " + std::to_string(column) +
                      " is outside the table of " + std::to_string(table_rows) + " rows",
                  "the data was made with another tokeniser: set model.vocab, or pack it again");
}

void refuse_target(std::int64_t target, std::int64_t row, std::int64_t vocabulary) {
  throw DataError("cross_entropy: target " + std::to_string(target) + " in row " +
                      std::to_string(row) + " is neither ignored (" +
                      std::to_string(kIgnoredTarget) + ") nor in [0, " +
                      std::to_string(vocabulary) + ")",
                  "the data was made with another tokeniser: set model.vocab, or pack it again");
}

}  // namespace lockstep::kernels
