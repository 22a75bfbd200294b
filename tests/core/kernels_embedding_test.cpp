// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

const std::vector<float> kWords = {1, 2, 3, 4, 5, 6};
const std::vector<float> kPlaces = {10, 20, 30, 40, 50, 60};

TEST(KernelEmbedding, AddsWordAndPlace) {
  Stream stream{Device{}};
  const Tensor tokens = indices_of({2, 2}, {2, 0, 1, 1});
  const Tensor y = nan_tensor({2, 2, 2});
  kernels::embedding_forward(stream, tokens, tensor_of({3, 2}, kWords), tensor_of({3, 2}, kPlaces),
                             y);
  stream.synchronize();
  expect_close(y, {15, 26, 31, 42, 13, 24, 33, 44}, 0.0);
}

TEST(KernelEmbedding, ReadsTablesOfHalves) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Stream stream{Device{}};
    const Tensor words(Device{}, {3, 2}, type);
    const Tensor places(Device{}, {3, 2}, type);
    kernels::convert(stream, tensor_of({3, 2}, kWords), words);
    kernels::convert(stream, tensor_of({3, 2}, kPlaces), places);
    const Tensor y = nan_tensor({2, 2, 2});
    kernels::embedding_forward(stream, indices_of({2, 2}, {2, 0, 1, 1}), words, places, y);
    stream.synchronize();
    expect_close(y, {15, 26, 31, 42, 13, 24, 33, 44}, 0.0);
    EXPECT_THROW(kernels::embedding_forward(stream, indices_of({2, 2}, {2, 0, 1, 1}), words,
                                            tensor_of({3, 2}, kPlaces), y),
                 UsageError);
  }
}

TEST(KernelEmbedding, BackwardSumsRowsOfEqualTokensAndZeroesTheRest) {
  Stream stream{Device{}};
  const Tensor tokens = indices_of({2, 2}, {2, 0, 2, 2});
  const Tensor y_grad = tensor_of({2, 2, 1}, {1, 2, 4, 8});
  const Tensor words = nan_tensor({4, 1});
  const Tensor places = nan_tensor({3, 1});
  kernels::embedding_backward(stream, tokens, y_grad, words, false, places, false);
  stream.synchronize();
  expect_close(words, {2, 0, 13, 0}, 0.0);
  expect_close(places, {5, 10, 0}, 0.0);
  kernels::embedding_backward(stream, tokens, y_grad, words, true, places, true);
  stream.synchronize();
  expect_close(words, {4, 0, 26, 0}, 0.0);
  expect_close(places, {10, 20, 0}, 0.0);
}

TEST(KernelEmbedding, NamesATokenOutsideTheTableAndWritesNothing) {
  for (const std::int32_t bad : {3, -1}) {
    Stream stream{Device{}};
    const Tensor tokens = indices_of({2, 2}, {2, 0, 1, bad});
    const Tensor y = tensor_of({2, 2, 2}, {9, 9, 9, 9, 9, 9, 9, 9});
    kernels::embedding_forward(stream, tokens, tensor_of({3, 2}, kWords),
                               tensor_of({3, 2}, kPlaces), y);
    try {
      stream.synchronize();
      FAIL() << "token " << bad << " was accepted";
    } catch (const DataError& error) {
      const std::string wanted = "token " + std::to_string(bad) + " in row 1, column 1";
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
    expect_close(y, Values(8, 9.0), 0.0);
  }
}

TEST(KernelEmbedding, RefusesASequenceLongerThanTheTableOfPlaces) {
  Stream stream{Device{}};
  const Tensor tokens = indices_of({1, 4}, {0, 0, 0, 0});
  EXPECT_THROW(kernels::embedding_forward(stream, tokens, tensor_of({3, 2}, kWords),
                                          tensor_of({3, 2}, kPlaces), nan_tensor({1, 4, 2})),
               UsageError);
}

}  // namespace
}  // namespace lockstep
