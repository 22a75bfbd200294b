// SPDX-License-Identifier: Apache-2.0
// The kernels of attention on the host: in f32 those of the CPU over the same memory, in bf16 loops
// that round what the kernels round.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/cuda/attention_args.h"
#include "core/kernels.h"
#include "tests/fakes/cuda/attention_bf16.h"

namespace lockstep::cuda {
namespace {

Tensor borrowed(const float* data, Shape shape) {
  // The CPU's kernels write to outputs alone.
  return Tensor::borrow(const_cast<float*>(data), std::move(shape), DType::f32, Device{});
}

// Twins run on a worker of the fake device, one after another.
Stream& host() {
  thread_local Stream stream(Device{}, "twin");
  return stream;
}

struct Shapes {
  explicit Shapes(const AttentionSizes& sizes)
      : qkv{sizes.batch, sizes.length, std::int64_t{3} * sizes.heads * sizes.width},
        y{sizes.batch, sizes.length, std::int64_t{1} * sizes.heads * sizes.width},
        rows{sizes.batch, sizes.heads, sizes.length} {}
  Shape qkv;
  Shape y;
  Shape rows;
};

void twin_forward(const AttentionForwardArgs& args) {
  const Shapes shapes(args.sizes);
  kernels::attention_forward(host(), borrowed(args.qkv, shapes.qkv), args.sizes.heads,
                             borrowed(args.y, shapes.y), borrowed(args.log_sum_exp, shapes.rows));
  host().synchronize();
}

void twin_row_sums(const AttentionBackwardArgs& args) {
  const auto [batch, length, heads, width, scale, vectors] = args.sizes;
  float* sum = args.row_sums;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t t = 0; t < length; ++t, ++sum) {
        const std::int64_t row = ((b * length + t) * heads + h) * width;
        *sum = 0.0F;
        for (std::int64_t c = 0; c < width; ++c) *sum += args.y[row + c] * args.y_grad[row + c];
      }
    }
  }
}

// The CPU's kernel has one pass for all three and adds up row sums itself. Each twin keeps what its
// kernel writes: of every row's query | key | value the parts [begin, end).
void backward_parts(const AttentionBackwardArgs& args, std::int64_t begin, std::int64_t end) {
  const Shapes shapes(args.sizes);
  const Tensor all(Device{}, shapes.qkv, DType::f32);
  kernels::attention_backward(host(), borrowed(args.qkv, shapes.qkv), borrowed(args.y, shapes.y),
                              borrowed(args.y_grad, shapes.y),
                              borrowed(args.log_sum_exp, shapes.rows), args.sizes.heads, all);
  host().synchronize();
  const std::int64_t model = shapes.y.back();
  for (std::int64_t row = 0; row < shapes.y[0] * shapes.y[1]; ++row) {
    const float* from = all.as<float>() + row * 3 * model;
    std::copy(from + begin * model, from + end * model, args.qkv_grad + (row * 3 + begin) * model);
  }
}

void twin_keys(const AttentionBackwardArgs& args) { backward_parts(args, 1, 3); }
void twin_queries(const AttentionBackwardArgs& args) { backward_parts(args, 0, 1); }

template <typename Args>
Kernel<Args> twin(const char* name, void (*function)(const Args&)) {
  return {name, reinterpret_cast<const void*>(function)};
}
// It serves all widths.
template <typename Args>
AttentionKernels<Args> twins(const char* name, void (*function)(const Args&)) {
  AttentionKernels<Args> all;
  all.fill(twin(name, function));
  return all;
}

}  // namespace

const AttentionKernels<AttentionForwardArgs> kAttentionForward =
    twins("attention_forward", twin_forward);
const AttentionKernels<AttentionForwardArgs> kAttentionForwardBf16 =
    twins("attention_forward_bf16", fake::attention_forward_bf16);
const Kernel<AttentionBackwardArgs> kAttentionRowSums = twin("attention_row_sums", twin_row_sums);
const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeys =
    twins("attention_backward_keys", twin_keys);
const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardKeysBf16 =
    twins("attention_backward_keys_bf16", fake::attention_backward_keys_bf16);
const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueries =
    twins("attention_backward_queries", twin_queries);
const AttentionKernels<AttentionBackwardArgs> kAttentionBackwardQueriesBf16 =
    twins("attention_backward_queries_bf16", fake::attention_backward_queries_bf16);

}  // namespace lockstep::cuda
