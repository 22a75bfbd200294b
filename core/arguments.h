// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::kernels {

struct AdamWStep;
struct CrossEntropyOptions;
struct GemmOptions;
struct LayerNormGradients;
struct LossSums;
struct SgdStep;

/// A tensor seen as [rows, columns]; columns are its last dimension.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
Matrix as_matrix(const Tensor& tensor) noexcept;

inline std::size_t to_size(std::int64_t count) noexcept { return static_cast<std::size_t>(count); }

/// Checks the arguments of one kernel call before anything is queued, for every device. Every
/// method throws a UsageError that names the kernel, the argument and both sides of the difference.
class Arguments {
 public:
  Arguments(const char* kernel, const Stream& stream);

  /// `tensor` is defined, on the stream's device and of `dtype`.
  void tensor(const char* name, const Tensor& tensor, DType dtype = DType::f32) const;
  /// As above, with `size` elements in any shape.
  void sized(const char* name, const Tensor& tensor, std::int64_t size,
             DType dtype = DType::f32) const;
  void require(bool holds, const char* problem, const char* hint) const;

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& hint) const;

  const char* kernel_;
  Device device_;
};

/// The arguments of the kernels of those names.
void check_gemm(const Arguments& arguments, const Tensor& a, const Tensor& b, const Tensor& c,
                const GemmOptions& options);
void check_layer_norm(const Arguments& arguments, const Tensor& x, const Tensor& weight,
                      const Tensor& mean, const Tensor& rstd);
void check_attention(const Arguments& arguments, const Tensor& qkv, int heads, const Tensor& y,
                     const Tensor& log_sum_exp);
void check_embedding(const Arguments& arguments, const Tensor& tokens, const Tensor& token_table,
                     const Tensor& position_table, const Tensor& y, DType table_type);
void check_cross_entropy(const Arguments& arguments, const Tensor& logits, const Tensor& targets,
                         const CrossEntropyOptions& options, const LossSums* sums);
void check_moments(const Arguments& arguments, const Tensor& w, const Tensor& g, const Tensor& m,
                   const Tensor& v, const AdamWStep& step);

/// The DataErrors of kernels that met an index outside their table.
[[noreturn]] void refuse_token(const char* kernel, std::int64_t token, std::int64_t row,
                               std::int64_t column, std::int64_t table_rows);
[[noreturn]] void refuse_target(std::int64_t target, std::int64_t row, std::int64_t vocabulary);

}  // namespace lockstep::kernels
