// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/arguments.h"
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

GemmShape shape_of(const Tensor& a, const Tensor& c, GemmOptions options) {
  const Matrix left = as_matrix(a);
  const Matrix result = as_matrix(c);
  return {.m = result.rows,
          .n = result.columns,
          .k = options.transpose_a ? left.rows : left.columns,
          .transpose_a = options.transpose_a,
          .transpose_b = options.transpose_b,
          .add = options.add,
          .type = a.dtype()};
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
  const GemmShape shape = shape_of(a, c, options);
  if (c.size() == 0) return;
  multiply_plain(stream, shape, {.a = a.data(), .b = b.data()}, c);
}

void gemm_bias(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& bias,
               const Tensor& c, GemmOptions options) {
  const Arguments arguments("gemm_bias", stream);
  check_gemm(arguments, a, b, c, options);
  const GemmShape shape = shape_of(a, c, options);
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
  check_gemm(arguments, a, b, x, options);
  const GemmShape shape = shape_of(a, x, options);
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

}  // namespace lockstep::kernels::cuda

namespace lockstep::cuda {

std::string gemm_library() {
  const std::size_t version = cublasLtGetVersion();  // 10,000 · major + 100 · minor + patch
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace lockstep::cuda
