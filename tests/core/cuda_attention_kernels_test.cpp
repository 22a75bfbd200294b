// SPDX-License-Identifier: Apache-2.0
// The device kernels of attention themselves, compiled as C++ and run thread by thread: their
// indices, barriers, masks and fragments, without a GPU. Compared with the CPU's kernels.
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "core/cuda/attention.h"
#include "core/cuda/attention_args.h"
#include "tests/core/kernels_support.h"
#include "tests/fakes/cuda/attention_bf16.h"
#include "tests/fakes/cuda/block_runner.h"

namespace lockstep {
namespace {

fake::Turns turns = fake::Turns::ascending;

template <typename Args>
void run_kernel(const void* function, const cuda::Grid& grid, const void* args) {
  const auto kernel = reinterpret_cast<void (*)(const Args)>(const_cast<void*>(function));
  const Args copy = *static_cast<const Args*>(args);
  fake::run_grid({.blocks = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
                  .threads = grid.threads.x,
                  .shared_bytes = grid.shared_bytes,
                  .turns = turns},
                 [&] { kernel(copy); });
}

}  // namespace

// In place of both launch.cpp: at once, on this thread.
void cuda::launch(const char* name, const void* function, Grid grid, const void* args,
                  std::size_t /*args_bytes*/, Stream& /*stream*/) {
  if (std::string(name).starts_with("attention_forward")) {
    run_kernel<AttentionForwardArgs>(function, grid, args);
  } else {
    run_kernel<AttentionBackwardArgs>(function, grid, args);
  }
}

namespace {

using namespace testing_support;
using kernels::AttentionMath;

struct Case {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t width;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "B" + std::to_string(c.batch) + "T" + std::to_string(c.length) + "H" +
         std::to_string(c.heads) + "D" + std::to_string(c.width);
}

struct Results {
  Tensor y;
  Tensor log_sum_exp;
  Tensor qkv_grad;
};

Results outputs_for(const Case& c) {
  return {.y = nan_tensor({c.batch, c.length, c.heads * c.width}),
          .log_sum_exp = nan_tensor({c.batch, c.heads, c.length}),
          .qkv_grad = nan_tensor({c.batch, c.length, 3 * c.heads * c.width})};
}

class CudaAttentionKernels : public testing::TestWithParam<Case> {
 protected:
  Results run(const Tensor& qkv, const Tensor& y_grad, AttentionMath math, fake::Turns order) {
    turns = order;
    const int heads = static_cast<int>(GetParam().heads);
    Results r = outputs_for(GetParam());
    kernels::cuda::attention_forward(stream_, qkv, heads, r.y, r.log_sum_exp, math);
    kernels::cuda::attention_backward(stream_, qkv, r.y, y_grad, r.log_sum_exp, heads, r.qkv_grad,
                                      math);
    return r;
  }
  Results run_on_cpu(const Tensor& qkv, const Tensor& y_grad) {
    const int heads = static_cast<int>(GetParam().heads);
    Results r = outputs_for(GetParam());
    kernels::attention_forward(stream_, qkv, heads, r.y, r.log_sum_exp);
    kernels::attention_backward(stream_, qkv, r.y, y_grad, r.log_sum_exp, heads, r.qkv_grad);
    stream_.synchronize();
    return r;
  }
  Stream stream_{Device{}};
};

// Σ y ∘ y_grad of each head's row, [B, heads, T].
Tensor row_products(const Tensor& y, const Tensor& y_grad, const Case& c) {
  Tensor sums = nan_tensor({c.batch, c.heads, c.length});
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t t = 0; t < c.length; ++t) {
        const std::int64_t row = ((b * c.length + t) * c.heads + h) * c.width;
        float& sum = sums.as<float>()[(b * c.heads + h) * c.length + t];
        sum = std::inner_product(y.as<float>() + row, y.as<float>() + row + c.width,
                                 y_grad.as<float>() + row, 0.0F);
      }
    }
  }
  return sums;
}

void expect_same_bits(const Tensor& one, const Tensor& other) {
  EXPECT_EQ(std::memcmp(one.data(), other.data(), one.bytes()), 0);
}

TEST_P(CudaAttentionKernels, MatchTheCpuWhicheverWarpRunsFirst) {
  const Case& c = GetParam();
  const Tensor qkv = random_tensor({c.batch, c.length, 3 * c.heads * c.width}, 1, 2.0);
  const Tensor y_grad = random_tensor({c.batch, c.length, c.heads * c.width}, 2);
  const Results wanted = run_on_cpu(qkv, y_grad);
  for (const AttentionMath math : {AttentionMath::f32, AttentionMath::bf16}) {
    // bf16 has 8 bits, and a gradient is a difference of rounded products.
    const double tolerance = math == AttentionMath::f32 ? 5e-6 : 3e-2;
    const Results got = run(qkv, y_grad, math, fake::Turns::ascending);
    expect_close(got.y, values_of(wanted.y), tolerance);
    expect_close(got.log_sum_exp, values_of(wanted.log_sum_exp), tolerance);
    expect_close(got.qkv_grad, values_of(wanted.qkv_grad), tolerance);
    const Results again = run(qkv, y_grad, math, fake::Turns::descending);
    expect_same_bits(again.y, got.y);
    expect_same_bits(again.log_sum_exp, got.log_sum_exp);
    expect_same_bits(again.qkv_grad, got.qkv_grad);
  }
}

// The mean distance of two tensors.
double distance(const Tensor& one, const Tensor& other) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < one.size(); ++i) {
    sum += std::abs(one.as<float>()[i] - other.as<float>()[i]);
  }
  return sum / static_cast<double>(one.size());
}

// What a run over the fakes computes in bf16: as near to the kernels as sums in another order are,
// and much nearer than f32 is.
TEST_P(CudaAttentionKernels, OfTheFakesRoundWhatTheKernelsRound) {
  const Case& c = GetParam();
  const Tensor qkv = random_tensor({c.batch, c.length, 3 * c.heads * c.width}, 1, 2.0);
  const Tensor y_grad = random_tensor({c.batch, c.length, c.heads * c.width}, 2);
  const Results exact = run_on_cpu(qkv, y_grad);
  const Results wanted = run(qkv, y_grad, AttentionMath::bf16, fake::Turns::ascending);
  const Results got = outputs_for(c);
  const cuda::AttentionSizes sizes{.batch = static_cast<int>(c.batch),
                                   .length = static_cast<int>(c.length),
                                   .heads = static_cast<int>(c.heads),
                                   .width = static_cast<int>(c.width),
                                   .scale = 1.0F / std::sqrt(static_cast<float>(c.width))};
  fake::attention_forward_bf16({.sizes = sizes,
                                .qkv = qkv.as<float>(),
                                .y = got.y.as<float>(),
                                .log_sum_exp = got.log_sum_exp.as<float>()});
  const Tensor row_sums = row_products(wanted.y, y_grad, c);
  const cuda::AttentionBackwardArgs args{.sizes = sizes,
                                         .qkv = qkv.as<float>(),
                                         .y = wanted.y.as<float>(),
                                         .y_grad = y_grad.as<float>(),
                                         .log_sum_exp = wanted.log_sum_exp.as<float>(),
                                         .row_sums = row_sums.as<float>(),
                                         .qkv_grad = got.qkv_grad.as<float>()};
  fake::attention_backward_keys_bf16(args);
  fake::attention_backward_queries_bf16(args);
  EXPECT_LT(distance(got.y, wanted.y), 0.1 * distance(exact.y, wanted.y));
  EXPECT_LT(distance(got.qkv_grad, wanted.qkv_grad),
            0.1 * distance(exact.qkv_grad, wanted.qkv_grad));
  expect_close(got.log_sum_exp, values_of(wanted.log_sum_exp), 5e-6);
}

// Around the tile of 64 and its padded widths; widths other than multiples of four are not read as
// vectors.
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionKernels,
                         testing::Values(Case{1, 1, 1, 16}, Case{2, 63, 2, 32}, Case{1, 64, 1, 64},
                                         Case{1, 130, 1, 17}, Case{1, 65, 3, 40},
                                         Case{1, 70, 1, 96}, Case{1, 129, 1, 128},
                                         Case{1, 66, 2, 3}, Case{1, 5, 3, 6}),
                         name_of);

TEST(BlockRunner, SaysThatThreadsWaitAtDifferentBarriers) {
  const auto half_waits = [] {
    if (fake::thread_index().x < 32) fake::wait_for_block();
  };
  EXPECT_THROW(fake::run_grid({.threads = 64}, half_waits), std::logic_error);
  const auto half_shows = [] {
    if (fake::thread_index().x < 16) fake::wait_for_warp();
  };
  EXPECT_THROW(fake::run_grid({.threads = 32}, half_shows), std::logic_error);
}

}  // namespace
}  // namespace lockstep
