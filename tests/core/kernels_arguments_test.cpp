// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

// The call throws a UsageError that contains `wanted`, and nothing was queued.
void expect_refused(const std::function<void(Stream&)>& call, const std::string& wanted) {
  Stream stream{Device{}};
  try {
    call(stream);
    FAIL() << "accepted: " << wanted;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(KernelArguments, NameBothShapesOfAGemmThatDoNotFit) {
  expect_refused(
      [](Stream& s) {
        kernels::gemm(s, nan_tensor({2, 3}), nan_tensor({4, 5}), nan_tensor({2, 5}));
      },
      "op(a) [2, 3] by op(b) [4, 5]");
  expect_refused(
      [](Stream& s) {
        kernels::gemm(s, nan_tensor({3, 2}), nan_tensor({3, 5}), nan_tensor({5, 2}),
                      {.transpose_a = true});
      },
      "does not give c [5, 2]");
}

TEST(KernelArguments, NameTheTensorThatIsUndefinedOrOfAnotherType) {
  expect_refused([](Stream& s) { kernels::add(s, Tensor(), nan_tensor({1})); },
                 "add: x is undefined");
  expect_refused([](Stream& s) { kernels::add(s, nan_tensor({1}), indices_of({1}, {0})); },
                 "add: y is i32, not f32");
  expect_refused([](Stream& s) { kernels::copy(s, nan_tensor({1}), indices_of({1}, {0})); },
                 "copy: y is i32, not f32");
}

TEST(KernelArguments, NameTheTensorOfAnotherSize) {
  expect_refused([](Stream& s) { kernels::copy(s, nan_tensor({2}), nan_tensor({3})); },
                 "y has shape [3], 3 elements instead of 2");
  expect_refused(
      [](Stream& s) {
        kernels::add_bias(s, nan_tensor({2}), nan_tensor({2, 3}));
      },
      "bias has shape [2]");
  expect_refused(
      [](Stream& s) {
        kernels::layer_norm_forward(s, nan_tensor({2, 3}), nan_tensor({3}), nan_tensor({3}), 1e-5F,
                                    nan_tensor({2, 3}), nan_tensor({3}), nan_tensor({2}));
      },
      "mean has shape [3]");
  expect_refused(
      [](Stream& s) {
        kernels::adamw(s, nan_tensor({2}), nan_tensor({2}), nan_tensor({2}), nan_tensor({1}), {});
      },
      "v has shape [1]");
  expect_refused(
      [](Stream& s) {
        kernels::sgd(s, nan_tensor({2}), nan_tensor({2}), Tensor(), {.momentum = 0.9F});
      },
      "buffer is undefined");
}

TEST(KernelArguments, NameWhatAttentionCannotSplit) {
  const auto attend = [](const Shape& qkv, int heads) {
    return [=](Stream& s) {
      kernels::attention_forward(s, nan_tensor(qkv), heads, nan_tensor({1, 2, 4}),
                                 nan_tensor({1, 2, 2}));
    };
  };
  expect_refused(attend({1, 2, 12}, 3), "heads do not divide C");
  expect_refused(attend({1, 2, 12}, 0), "heads do not divide C");
  expect_refused(attend({1, 2, 13}, 2), "qkv is not [B, T, 3C]");
  expect_refused(attend({2, 12}, 2), "qkv is not [B, T, 3C]");
}

TEST(KernelArguments, NameOptionsThatMakeNoSense) {
  kernels::LossSums sums;
  const auto cross_entropy = [&](kernels::CrossEntropyOptions options, kernels::LossSums* out) {
    return [=](Stream& s) {
      kernels::cross_entropy(s, nan_tensor({1, 4}), indices_of({1}, {0}), options, out);
    };
  };
  expect_refused(cross_entropy({.vocabulary = 5}, &sums), "the vocabulary does not fit");
  expect_refused(cross_entropy({.vocabulary = 0}, &sums), "the vocabulary does not fit");
  expect_refused(cross_entropy({.vocabulary = 4, .smoothing = 1.5F}, &sums), "the smoothing");
  expect_refused(cross_entropy({.vocabulary = 4}, nullptr), "sums is null");
  expect_refused(
      [](Stream& s) {
        kernels::sgd(s, nan_tensor({1}), nan_tensor({1}), Tensor(), {.nesterov = true});
      },
      "Nesterov without momentum");
  expect_refused(
      [](Stream& s) {
        double sum = 0.0;
        kernels::block_square_sums(s, nan_tensor({1}), 0, &sum);
      },
      "a block has no elements");
}

}  // namespace
}  // namespace lockstep
