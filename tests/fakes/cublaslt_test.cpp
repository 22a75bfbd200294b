// SPDX-License-Identifier: Apache-2.0
// The fake cuBLASLt's own tests.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/fakes/cuda/elements.h"
#include "tests/fakes/cuda_fixture.h"

namespace lockstep::fake {
namespace {

// cuBLASLt against sums in f64. A is [m, k] and B [k, n] once op() is applied.
class FakeBlas : public FakeCuda {
 protected:
  struct Case {
    std::size_t m;
    std::size_t n;
    std::size_t k;
    bool transpose_a;
    bool transpose_b;
    float alpha;
    float beta;
    bool row_major;
  };

  static std::vector<float> values(std::size_t n, int seed) {
    std::vector<float> result(n);
    for (std::size_t i = 0; i < n; ++i) {
      result[i] = static_cast<float>((static_cast<int>(i) * 37 + seed) % 17 - 8) / 8.0F;
    }
    return result;
  }

  cublasLtMatrixLayout_t layout(cudaDataType_t type, std::size_t rows, std::size_t columns,
                                std::size_t ld, bool row_major) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, type, rows, columns, static_cast<std::int64_t>(ld)),
              CUBLAS_STATUS_SUCCESS);
    const cublasLtOrder_t order = row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order),
        CUBLAS_STATUS_SUCCESS);
    return made;
  }

  template <typename T>
  void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }

  void check(const Case& c) {
    SCOPED_TRACE(testing::Message() << c.m << " " << c.n << " " << c.k << " " << c.transpose_a
                                    << c.transpose_b << c.row_major);
    const std::size_t a_rows = c.transpose_a ? c.k : c.m;
    const std::size_t a_columns = c.transpose_a ? c.m : c.k;
    const std::size_t b_rows = c.transpose_b ? c.n : c.k;
    const std::size_t b_columns = c.transpose_b ? c.k : c.n;
    const auto ld = [&](std::size_t rows, std::size_t columns) {
      return (c.row_major ? columns : rows) + 3;
    };
    const auto at = [&](const std::vector<float>& x, std::size_t rows, std::size_t columns,
                        std::size_t i, std::size_t j) {
      return x[c.row_major ? i * ld(rows, columns) + j : j * ld(rows, columns) + i];
    };
    const auto size = [&](std::size_t rows, std::size_t columns) {
      return ld(rows, columns) * (c.row_major ? rows : columns);
    };
    const auto a = values(size(a_rows, a_columns), 1);
    const auto b = values(size(b_rows, b_columns), 2);
    const auto before = values(size(c.m, c.n), 3);
    float* da = upload(a);
    float* db = upload(b);
    float* dd = upload(before);

    cublasLtHandle_t handle = nullptr;
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDesc_t desc = nullptr;
    ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, c.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, c.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    const auto la = layout(CUDA_R_32F, a_rows, a_columns, ld(a_rows, a_columns), c.row_major);
    const auto lb = layout(CUDA_R_32F, b_rows, b_columns, ld(b_rows, b_columns), c.row_major);
    const auto ldd = layout(CUDA_R_32F, c.m, c.n, ld(c.m, c.n), c.row_major);
    cublasLtMatmulPreference_t preference = nullptr;
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t choice{};
    int found = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ldd, ldd, preference, 1, &choice,
                                             &found),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(found, 1);
    ASSERT_EQ(cublasLtMatmul(handle, desc, &c.alpha, da, la, db, lb, &c.beta, dd, ldd, dd, ldd,
                             &choice.algo, nullptr, 0, stream_),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const auto d = download(dd, before.size());
    for (std::size_t i = 0; i < c.m; ++i) {
      for (std::size_t j = 0; j < c.n; ++j) {
        double sum = 0.0;
        for (std::size_t k = 0; k < c.k; ++k) {
          const float x =
              c.transpose_a ? at(a, a_rows, a_columns, k, i) : at(a, a_rows, a_columns, i, k);
          const float y =
              c.transpose_b ? at(b, b_rows, b_columns, j, k) : at(b, b_rows, b_columns, k, j);
          sum += double{x} * double{y};
        }
        const double want = c.alpha * sum + c.beta * at(before, c.m, c.n, i, j);
        ASSERT_NEAR(at(d, c.m, c.n, i, j), want, 1e-4) << i << " " << j;
      }
    }
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    for (const auto made : {la, lb, ldd}) cublasLtMatrixLayoutDestroy(made);
    EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    for (float* data : {da, db, dd}) EXPECT_EQ(cudaFree(data), cudaSuccess);
  }
};

TEST_F(FakeBlas, ProductsHonourTransposesOrdersLeadingDimensionsAndFactors) {
  for (const bool row_major : {false, true}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        check({7, 9, 5, transpose_a, transpose_b, 1.0F, 0.0F, row_major});
        check({16, 8, 33, transpose_a, transpose_b, 0.5F, 2.0F, row_major});
      }
    }
  }
  check({1, 1, 1, false, false, 1.0F, 1.0F, false});
}

TEST_F(FakeBlas, EpiloguesAddABiasAndTakeTheGeluInBf16) {
  constexpr std::size_t kM = 8;
  constexpr std::size_t kN = 3;
  const auto halves = [](const std::vector<float>& x) {
    std::vector<std::uint16_t> result;
    for (const float value : x) result.push_back(to_bf16(value));
    return result;
  };
  std::vector<float> identity(kM * kM, 0.0F);
  for (std::size_t i = 0; i < kM; ++i) identity[i * kM + i] = 1.0F;
  const auto b = values(kM * kN, 4);
  const auto bias = values(kM, 5);
  std::uint16_t* da = upload(halves(identity));
  std::uint16_t* db = upload(halves(b));
  std::uint16_t* dbias = upload(halves(bias));
  auto* dd = allocate<std::uint16_t>(kM * kN);
  auto* daux = allocate<std::uint16_t>(kM * kN);

  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{kM});
  const auto la = layout(CUDA_R_16BF, kM, kM, kM, false);
  const auto lb = layout(CUDA_R_16BF, kM, kN, kM, false);
  const float one = 1.0F;
  const float zero = 0.0F;
  ASSERT_EQ(cublasLtMatmul(handle, desc, &one, da, la, db, lb, &zero, dd, lb, dd, lb, nullptr,
                           nullptr, 0, stream_),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const auto d = download(dd, kM * kN);
  const auto aux = download(daux, kM * kN);
  for (std::size_t i = 0; i < kM * kN; ++i) {
    const float x = b[i] + bias[i % kM];
    EXPECT_EQ(from_bf16(aux[i]), x);
    const double y = 0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(from_bf16(d[i]), y, 0.01);
  }
  const auto wide = layout(CUDA_R_32F, kM, kM, kM, false);
  EXPECT_EQ(cublasLtMatmul(handle, desc, &one, da, wide, db, lb, &zero, dd, lb, dd, lb, nullptr,
                           nullptr, 0, stream_),
            CUBLAS_STATUS_NOT_SUPPORTED);
  for (const auto made : {la, lb, wide}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
  for (std::uint16_t* data : {da, db, dbias, dd, daux}) EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST(FakeElements, HalvesRoundToNearestEven) {
  EXPECT_EQ(to_f16(1.0F), 0x3C00);
  EXPECT_EQ(to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(to_f16(0x1p-24F), 1);
  EXPECT_EQ(to_f16(0x1p-25F), 0);
  EXPECT_EQ(to_f16(-0.0F), 0x8000);
  EXPECT_EQ(to_bf16(1.00390625F), 0x3F80);  // a tie
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7C00U) != 0x7C00U || (half & 0x3FFU) == 0) {
      ASSERT_EQ(to_f16(from_f16(half)), half);
    }
    if ((half & 0x7F80U) != 0x7F80U) {
      ASSERT_EQ(to_bf16(from_bf16(half)), half);
    }
  }
}

}  // namespace
}  // namespace lockstep::fake
