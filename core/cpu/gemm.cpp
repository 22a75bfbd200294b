// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/cpu/arguments.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels {
namespace {

// oneDNN takes its number of threads from OpenMP, which keeps one a calling thread; each stream's
// worker is such a thread. A gemm on another number of threads has other bits.
constexpr int kThreadsPerStream = 1;

void multiply(const Tensor& a, const Tensor& b, const Tensor& c, GemmOptions options) {
  const Matrix a_shape = as_matrix(a);
  const Matrix b_shape = as_matrix(b);
  const Matrix c_shape = as_matrix(c);
  const std::int64_t inner = options.transpose_a ? a_shape.rows : a_shape.columns;
  if (c.size() == 0) return;
  if (inner == 0) {
    if (!options.add) std::memset(c.data(), 0, c.bytes());
    return;
  }
  omp_set_num_threads(kThreadsPerStream);
  const dnnl_status_t status =
      dnnl_sgemm(options.transpose_a ? 'T' : 'N', options.transpose_b ? 'T' : 'N', c_shape.rows,
                 c_shape.columns, inner, 1.0F, a.as<float>(), a_shape.columns, b.as<float>(),
                 b_shape.columns, options.add ? 1.0F : 0.0F, c.as<float>(), c_shape.columns);
  if (status != dnnl_success) {
    throw DeviceError("gemm [" + std::to_string(c_shape.rows) + ", " + std::to_string(inner) +
                          "] by [" + std::to_string(inner) + ", " +
                          std::to_string(c_shape.columns) + "]: oneDNN failed with status " +
                          std::to_string(static_cast<int>(status)),
                      "status 1 is a lack of memory: use a smaller batch.micro");
  }
}

}  // namespace

void gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c, GemmOptions options) {
  const Arguments arguments("gemm", stream);
  arguments.tensor("a", a);
  arguments.tensor("b", b);
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
  stream.enqueue([a, b, c, options] { multiply(a, b, c, options); });
}

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace lockstep::kernels
