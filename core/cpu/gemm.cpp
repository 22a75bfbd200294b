// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "core/arguments.h"
#include "core/kernel_table.h"
#include "lockstep/core/error.h"

namespace lockstep::kernels {
namespace {

// oneDNN takes its number of threads from OpenMP, which keeps one a calling thread; each stream's
// worker is such a thread. A gemm on another number of threads has other bits.
constexpr int kThreadsPerStream = 1;

struct Problem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

void check_status(dnnl_status_t status, const Problem& problem) {
  if (status == dnnl_success) return;
  throw DeviceError("gemm [" + std::to_string(problem.m) + ", " + std::to_string(problem.k) +
                        "] by [" + std::to_string(problem.k) + ", " + std::to_string(problem.n) +
                        "]: oneDNN failed with status " + std::to_string(static_cast<int>(status)),
                    "status 1 is a lack of memory: use a smaller batch.micro");
}

void multiply_f32(const float* a, const float* b, const Tensor& c, const Problem& problem,
                  GemmOptions options) {
  const dnnl_dim_t a_columns = options.transpose_a ? problem.m : problem.k;
  const dnnl_dim_t b_columns = options.transpose_b ? problem.k : problem.n;
  check_status(dnnl_sgemm(options.transpose_a ? 'T' : 'N', options.transpose_b ? 'T' : 'N',
                          problem.m, problem.n, problem.k, 1.0F, a, a_columns, b, b_columns,
                          options.add ? 1.0F : 0.0F, c.as<float>(), problem.n),
               problem);
}

// What oneDNN's primitives need; one a calling thread, since a stream of theirs serves one.
struct Primitives {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Tensor scratch;  // u8, grows to the largest that was asked for
};

void multiply_bf16(const Tensor& a, const Tensor& b, const Tensor& c, const Problem& problem,
                   GemmOptions options) {
  thread_local Primitives primitives;
  using Memory = dnnl::memory;
  const auto [m, n, k] = problem;
  const Memory::desc a_desc({m, k}, Memory::data_type::bf16,
                            options.transpose_a ? Memory::dims{1, m} : Memory::dims{k, 1});
  const Memory::desc b_desc({k, n}, Memory::data_type::bf16,
                            options.transpose_b ? Memory::dims{1, k} : Memory::dims{n, 1});
  const Memory::desc c_desc({m, n}, Memory::data_type::f32, Memory::dims{n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (options.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  try {
    // oneDNN keeps what it has generated for a shape: this takes 2 µs after the first time.
    const dnnl::matmul::primitive_desc description({a_desc, b_desc, c_desc}, attributes,
                                                   primitives.engine);
    const auto scratch = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    if (primitives.scratch.size() < scratch) {
      primitives.scratch = Tensor(Device{}, {scratch}, DType::u8);
    }
    const auto memory = [&](const Memory::desc& desc, void* data) {
      return Memory(desc, primitives.engine, data);
    };
    dnnl::matmul(description)
        .execute(primitives.stream, {{DNNL_ARG_SRC, memory(a_desc, a.data())},
                                     {DNNL_ARG_WEIGHTS, memory(b_desc, b.data())},
                                     {DNNL_ARG_DST, memory(c_desc, c.data())},
                                     {DNNL_ARG_SCRATCHPAD, memory(description.scratchpad_desc(),
                                                                  primitives.scratch.data())}});
    primitives.stream.wait();
  } catch (const dnnl::error& error) {
    check_status(error.status, problem);
  }
}

// Elsewhere oneDNN multiplies bf16 by a plain loop.
bool has_bf16_products() {
  constexpr auto needed = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

std::vector<float> widened(const Tensor& x) {
  std::vector<float> wide(to_size(x.size()));
  convert_elements(x.data(), x.dtype(), wide.data(), DType::f32, wide.size());
  return wide;
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& c, const Problem& problem,
              GemmOptions options) {
  if (c.size() == 0) return;
  if (problem.k == 0) {
    if (!options.add) std::memset(c.data(), 0, c.bytes());
    return;
  }
  omp_set_num_threads(kThreadsPerStream);
  if (a.dtype() == DType::f32) {
    multiply_f32(a.as<float>(), b.as<float>(), c, problem, options);
  } else if (a.dtype() == DType::bf16 && has_bf16_products()) {
    multiply_bf16(a, b, c, problem, options);
  } else {
    multiply_f32(widened(a).data(), widened(b).data(), c, problem, options);
  }
}

}  // namespace

void cpu::gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
               GemmOptions options) {
  const Matrix left = as_matrix(a);
  const Matrix result = as_matrix(c);
  const Problem problem{
      .m = result.rows, .n = result.columns, .k = options.transpose_a ? left.rows : left.columns};
  stream.enqueue([a, b, c, problem, options] { multiply(a, b, c, problem, options); });
}

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace lockstep::kernels
