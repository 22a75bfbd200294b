// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/cpu/arguments.h"
#include "core/cuda/gemm_context.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels::cuda {
namespace {

using lockstep::cuda::Epilogue;
using lockstep::cuda::GemmContext;
using lockstep::cuda::GemmMemory;
using lockstep::cuda::GemmShape;

bool are_aligned(std::initializer_list<const void*> memory) {
  constexpr std::uintptr_t bytes_of_vector = 16;
  return std::all_of(memory.begin(), memory.end(), [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes_of_vector == 0;
  });
}

GemmShape check_shapes(const Arguments& arguments, const Tensor& a, const Tensor& b,
                       const Tensor& c, GemmOptions options) {
  const DType type = is_half(a.dtype()) ? a.dtype() : DType::f32;
  arguments.tensor("a", a, type);
  arguments.tensor("b", b, type);
  arguments.tensor("c", c);
  Matrix left = as_matrix(a);
  Matrix right = as_matrix(b);
  if (options.transpose_a) std::swap(left.rows, left.columns);
  if (options.transpose_b) std::swap(right.rows, right.columns);
  const Matrix result = as_matrix(c);
  if (left.columns != right.rows || result.rows != left.rows || result.columns != right.columns) {
    throw UsageError("gemm: op(a) [" + std::to_string(left.rows) + ", " +
                         std::to_string(left.columns) + "] by op(b) [" +
                         std::to_string(right.rows) + ", " + std::to_string(right.columns) +
                         "] does not give c " + to_string(c.shape()),
                     "op(a) is [M, K], op(b) [K, N], c [M, N]");
  }
  return {.m = result.rows,
          .n = result.columns,
          .k = left.columns,
          .transpose_a = options.transpose_a,
          .transpose_b = options.transpose_b,
          .add = options.add,
          .type = type};
}

// A sum of nothing is no product for cuBLASLt.
bool multiply_plain(Stream& stream, GemmShape shape, const GemmMemory& memory, const Tensor& c) {
  if (shape.k == 0) {
    if (!shape.add) kernels::fill_zero(stream, c);
    return true;
  }
  shape.epilogue = Epilogue::none;
  shape.aligned = are_aligned({memory.a, memory.b, c.data()});
  return GemmContext::of(stream.device())
      .multiply(stream, shape, {.a = memory.a, .b = memory.b, .c = c.as<float>()});
}

bool multiply_fused(Stream& stream, GemmShape shape, Epilogue epilogue, const GemmMemory& memory) {
  if (shape.k == 0) return false;
  shape.epilogue = epilogue;
  shape.aligned =
      are_aligned({memory.a, memory.b, memory.c, memory.bias, memory.before_gelu});  // null is
  return GemmContext::of(stream.device()).multiply(stream, shape, memory);
}

}  // namespace

void gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c, GemmOptions options) {
  const GemmShape shape = check_shapes(Arguments("gemm", stream), a, b, c, options);
  if (c.size() == 0) return;
  multiply_plain(stream, shape, {.a = a.data(), .b = b.data()}, c);
}

void gemm_bias(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& bias,
               const Tensor& c, GemmOptions options) {
  const Arguments arguments("gemm_bias", stream);
  const GemmShape shape = check_shapes(arguments, a, b, c, options);
  arguments.sized("bias", bias, shape.n);
  if (c.size() == 0) return;
  const GemmMemory memory{
      .a = a.data(), .b = b.data(), .c = c.as<float>(), .bias = bias.as<float>()};
  if (multiply_fused(stream, shape, Epilogue::bias, memory)) return;
  multiply_plain(stream, shape, memory, c);
  kernels::add_bias(stream, bias, c);
}

void gemm_bias_gelu(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& bias,
                    const Tensor& x, const Tensor& y, GemmOptions options) {
  const Arguments arguments("gemm_bias_gelu", stream);
  const GemmShape shape = check_shapes(arguments, a, b, x, options);
  arguments.require(!options.add, "`add` with gelu", "gelu of a sum is not the sum of gelu");
  arguments.sized("bias", bias, shape.n);
  arguments.sized("y", y, x.size());
  if (x.size() == 0) return;
  const GemmMemory memory{.a = a.data(),
                          .b = b.data(),
                          .c = y.as<float>(),
                          .bias = bias.as<float>(),
                          .before_gelu = x.as<float>()};
  if (multiply_fused(stream, shape, Epilogue::bias_gelu, memory)) return;
  multiply_plain(stream, shape, memory, x);
  kernels::bias_gelu_forward(stream, bias, x, y);
}

std::string gemm_library() {
  const std::size_t version = cublasLtGetVersion();  // 10,000 · major + 100 · minor + patch
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace lockstep::kernels::cuda
