// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

// [rows, columns] of op(x).
double at(const Values& x, bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t r,
          std::int64_t c) {
  return x[static_cast<std::size_t>(transposed ? c * rows + r : r * columns + c)];
}

struct Problem {
  std::int64_t m, n, k;
};

class KernelGemm : public KernelTest {};

TEST_P(KernelGemm, MatchesADoubleLoopForEveryTransposeAndOddSize) {
  const std::vector<std::int64_t> sizes = {1, 3, 17, 33, 64};
  for (const std::int64_t m : sizes) {
    for (const std::int64_t n : sizes) {
      for (const std::int64_t k : {1, 5, 70}) {
        for (int mode = 0; mode < 8; ++mode) {
          const kernels::GemmOptions options = {.transpose_a = (mode & 1) != 0,
                                                .transpose_b = (mode & 2) != 0,
                                                .add = (mode & 4) != 0};
          const Tensor a = random_tensor(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
          const Tensor b = random_tensor(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
          const Tensor c = options.add ? random_tensor({m, n}, 3) : nan_tensor({m, n});
          const Values a_values = values_of(a);
          const Values b_values = values_of(b);
          Values wanted = options.add ? values_of(c) : Values(count_of(c), 0.0);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0.0;
              for (std::int64_t l = 0; l < k; ++l) {
                sum += at(a_values, options.transpose_a, m, k, i, l) *
                       at(b_values, options.transpose_b, k, n, l, j);
              }
              wanted[static_cast<std::size_t>(i * n + j)] += sum;
            }
          }
          kernels::gemm(stream_, a, b, c, options);
          stream_.synchronize();
          expect_close(c, wanted, 2e-6,
                       "m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
                           std::to_string(k) + " mode " + std::to_string(mode));
        }
      }
    }
  }
}

TEST_P(KernelGemm, OfHalvesIsThatOfTheirValuesWithSumsInF32) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (int mode = 0; mode < 8; ++mode) {
      for (const auto& [m, n, k] : {Problem{1, 1, 1}, Problem{17, 33, 70}, Problem{64, 16, 129}}) {
        const kernels::GemmOptions options = {
            .transpose_a = (mode & 1) != 0, .transpose_b = (mode & 2) != 0, .add = (mode & 4) != 0};
        const auto rounded = [&](Shape shape, unsigned seed) {
          Tensor half(Device{}, shape, type);
          kernels::convert(stream_, random_tensor(shape, seed), half);
          Tensor wide(Device{}, shape, DType::f32);
          kernels::convert(stream_, half, wide);
          stream_.synchronize();
          return std::pair(half, wide);
        };
        const auto [a, wide_a] = rounded(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
        const auto [b, wide_b] = rounded(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
        const Tensor c = options.add ? random_tensor({m, n}, 3) : nan_tensor({m, n});
        const Tensor wanted = unaligned_copy(c);
        kernels::gemm(stream_, a, b, c, options);
        kernels::gemm(stream_, wide_a, wide_b, wanted, options);
        stream_.synchronize();
        expect_close(c, values_of(wanted), 2e-6,
                     std::string(to_string(type)) + " mode " + std::to_string(mode));
      }
    }
  }
}

TEST_P(KernelGemm, RefusesTwoTypes) {
  const Tensor a = random_tensor({2, 2}, 1);
  EXPECT_THROW(kernels::gemm(stream_, a, Tensor(Device{}, {2, 2}, DType::bf16), a), UsageError);
  EXPECT_THROW(kernels::gemm(stream_, Tensor(Device{}, {2, 2}, DType::bf16), a, a), UsageError);
}

TEST_P(KernelGemm, TakesMoreDimensionsAsRows) {
  const Tensor a = tensor_of({1, 2, 2}, {1, 2, 3, 4});
  const Tensor b = tensor_of({2, 1}, {10, 100});
  const Tensor c = nan_tensor({1, 2, 1});
  kernels::gemm(stream_, a, b, c);
  stream_.synchronize();
  expect_close(c, {210, 430}, 0.0);
}

TEST_P(KernelGemm, OfNoInnerElementsIsZeroOrLeavesTheSum) {
  const Tensor c = tensor_of({2, 1}, {5, 6});
  const Tensor a(Device{}, {2, 0}, DType::f32);
  const Tensor b(Device{}, {0, 1}, DType::f32);
  kernels::gemm(stream_, a, b, c, {.add = true});
  stream_.synchronize();
  expect_close(c, {5, 6}, 0.0);
  kernels::gemm(stream_, a, b, c);
  stream_.synchronize();
  expect_close(c, {0, 0}, 0.0);
}

TEST_P(KernelGemm, OfNoRowsTouchesNothing) {
  const Tensor a(Device{}, {0, 3}, DType::f32);
  const Tensor b = random_tensor({3, 2}, 1);
  const Tensor c(Device{}, {0, 2}, DType::f32);
  kernels::gemm(stream_, a, b, c);
  EXPECT_NO_THROW(stream_.synchronize());
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelGemm);

}  // namespace
}  // namespace lockstep
