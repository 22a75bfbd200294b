// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "lockstep/core/error.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

constexpr std::int32_t kIgnored = kernels::kIgnoredTarget;

class KernelCrossEntropy : public KernelTest {
 protected:
  kernels::LossSums run(const Tensor& logits, const std::vector<std::int32_t>& targets,
                        kernels::CrossEntropyOptions options) {
    kernels::LossSums sums;
    const Tensor labels = indices_of({static_cast<std::int64_t>(targets.size())}, targets);
    kernels::cross_entropy(stream_, logits, labels, options, &sums);
    stream_.synchronize();
    return sums;
  }
};

// One row in f64.
double row_loss(const Values& x, std::size_t target, double smoothing) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0.0;
  double total = 0.0;
  for (const double value : x) {
    sum += std::exp(value - top);
    total += value;
  }
  const double log_sum = top + std::log(sum);
  return log_sum - (1.0 - smoothing) * x[target] -
         smoothing * total / static_cast<double>(x.size());
}

TEST_P(KernelCrossEntropy, MatchesADoubleLoopAndFiniteDifferences) {
  for (const std::int64_t vocabulary : {1, 2, 3, 17, 33, 100}) {
    for (const float smoothing : {0.0F, 0.25F}) {
      const std::int64_t padded = vocabulary + 7;
      const Tensor logits = random_tensor({3, padded}, 1, 5.0);
      const Values start = values_of(logits);
      const auto last = static_cast<std::int32_t>(vocabulary - 1);
      const std::vector<std::int32_t> targets = {0, last, kIgnored};
      double loss = 0.0;
      Values gradient(start.size(), 0.0);
      for (std::size_t row = 0; row < 2; ++row) {
        const std::size_t begin = row * static_cast<std::size_t>(padded);
        const auto from = start.begin() + static_cast<std::ptrdiff_t>(begin);
        const Values x(from, from + vocabulary);
        const auto target = static_cast<std::size_t>(targets[row]);
        const auto of_row = [&](const Values& v) {
          return row_loss(v, target, static_cast<double>(smoothing));
        };
        loss += of_row(x);
        const Values slope = slope_of(of_row, x);
        std::copy(slope.begin(), slope.end(),
                  gradient.begin() + static_cast<std::ptrdiff_t>(begin));
      }
      const kernels::LossSums sums =
          run(logits, targets, {.vocabulary = vocabulary, .smoothing = smoothing});
      EXPECT_NEAR(sums.loss, loss, 3e-7 * std::max(1.0, loss));
      EXPECT_EQ(sums.tokens, 2);
      EXPECT_EQ(sums.non_finite, 0);
      expect_close(logits, gradient, 1e-6);
    }
  }
}

TEST_P(KernelCrossEntropy, LossAloneEqualsTheLossWithAGradientBitForBit) {
  const Tensor logits = random_tensor({9, 65}, 1, 5.0);
  const Tensor same = random_tensor({9, 65}, 1, 5.0);
  const std::vector<std::int32_t> targets = {0, 60, 3, kIgnored, 5, 6, 7, 8, 9};
  const kernels::CrossEntropyOptions options = {.vocabulary = 61, .smoothing = 0.1F};
  const kernels::LossSums with_gradient = run(logits, targets, options);
  kernels::LossSums alone;
  kernels::cross_entropy_loss(stream_, same, indices_of({9}, targets), options, &alone);
  stream_.synchronize();
  EXPECT_EQ(alone.loss, with_gradient.loss);
  EXPECT_EQ(alone.tokens, 8);
}

TEST_P(KernelCrossEntropy, SumsOverTokensGiveOneDivisorForUnevenMicroBatches) {  // P01
  const std::vector<float> w = {0.5F, -0.2F, 0.1F};
  const auto micro_batch = [&](const std::vector<std::int32_t>& targets, Values& gradient) {
    const auto rows = static_cast<std::int64_t>(targets.size());
    Tensor logits = nan_tensor({rows, 3});
    for (std::size_t i = 0; i < count_of(logits); ++i) logits.as<float>()[i] = w[i % 3];
    const kernels::LossSums sums = run(logits, targets, {.vocabulary = 3});
    for (std::size_t i = 0; i < count_of(logits); ++i) gradient[i % 3] += values_of(logits)[i];
    return sums;
  };
  Values gradient(3, 0.0);
  const kernels::LossSums a = micro_batch({0, 1, 2}, gradient);
  const kernels::LossSums b = micro_batch({0, 0, 1, 2, 2}, gradient);
  EXPECT_NEAR(a.loss, 3.419900130874, 1e-6);
  EXPECT_NEAR(b.loss, 5.366500218124, 1e-6);
  EXPECT_EQ(a.tokens + b.tokens, 8);
  EXPECT_NEAR((a.loss + b.loss) / 8.0, 1.098300043625, 1e-6);
  const Values wanted = {0.086487623, -0.020832028, -0.065655595};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(gradient[i] / 8.0, wanted[i], 1e-7);
}

TEST_P(KernelCrossEntropy, OfIgnoredTargetsAloneIsZeroWithoutNan) {  // P02
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = tensor_of({3, 3}, {1, 2, 3, 0, 0, 0, nan, 1, 2});
  const kernels::LossSums sums = run(logits, {kIgnored, kIgnored, kIgnored}, {.vocabulary = 3});
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_EQ(sums.tokens, 0);
  EXPECT_EQ(sums.non_finite, 0);
  expect_close(logits, Values(9, 0.0), 0.0);
}

TEST_P(KernelCrossEntropy, SmoothsOverTheRealVocabulary) {  // P03
  const Tensor logits = tensor_of({1, 6}, {2, 1, 0, -1, 9, 9});
  const kernels::LossSums sums = run(logits, {0}, {.vocabulary = 4, .smoothing = 0.1F});
  EXPECT_NEAR(sums.loss, 0.590189698561, 6e-7);
  expect_close(logits, {-0.28108574, 0.211882818, 0.062144319, 0.007058603, 0, 0}, 1e-7);
  const Tensor plain = tensor_of({1, 4}, {2, 1, 0, -1});
  EXPECT_NEAR(run(plain, {0}, {.vocabulary = 4}).loss, 0.440189698561, 5e-7);
}

TEST_P(KernelCrossEntropy, NamesATargetOutOfRangeAndLeavesTheLogits) {  // P04
  struct Case {
    std::int64_t columns;
    std::int64_t vocabulary;
    std::int32_t bad;
  };
  for (const Case& c : {Case{4, 4, -4}, Case{4, 4, 4}, Case{6, 5, 5}}) {
    Stream stream{Device{}};
    const Tensor logits = random_tensor({2, c.columns}, 1);
    const Values before = values_of(logits);
    kernels::LossSums sums;
    kernels::cross_entropy(stream, logits, indices_of({2}, {1, c.bad}),
                           {.vocabulary = c.vocabulary}, &sums);
    try {
      stream.synchronize();
      FAIL() << "target " << c.bad << " was accepted";
    } catch (const DataError& error) {
      const std::string wanted = "target " + std::to_string(c.bad) + " in row 1";
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
      EXPECT_EQ(error.outcome(), Outcome::bad_data);
    }
    expect_close(logits, before, 0.0);
  }
  EXPECT_EQ(run(random_tensor({2, 4}, 1), {1, kIgnored}, {.vocabulary = 4}).tokens, 1);
}

TEST_P(KernelCrossEntropy, GivesPaddingNoProbabilityAndNoGradient) {  // P21 on one rank
  const Tensor logits = tensor_of({1, 6}, {1, 2, 3, 4, 5, 9});
  EXPECT_NEAR(run(logits, {4}, {.vocabulary = 5}).loss, 0.451914395938, 5e-7);
  EXPECT_EQ(logits.as<float>()[5], 0.0F);
}

TEST_P(KernelCrossEntropy, SurvivesLogitsThatOverflowAnExponential) {
  const Tensor logits = tensor_of({2, 3}, {1000, 0, -1000, -1e30F, 1e30F, 0});
  const kernels::LossSums sums = run(logits, {1, 1}, {.vocabulary = 3});
  EXPECT_NEAR(sums.loss, 1000.0, 1e-4);
  EXPECT_EQ(sums.non_finite, 0);
  expect_close(logits, {1, -1, 0, 0, 0, 0}, 1e-7);
}

TEST_P(KernelCrossEntropy, CountsRowsWhoseLossIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::size_t at : {std::size_t{0}, std::size_t{5}, std::size_t{16}}) {
    const Tensor logits = random_tensor({4, 17}, 1);
    logits.as<float>()[at] = nan;
    logits.as<float>()[17 + at] = inf;
    logits.as<float>()[34 + 3] = -inf;  // the target cannot happen
    const kernels::LossSums sums = run(logits, {3, 3, 3, 3}, {.vocabulary = 17});
    EXPECT_EQ(sums.non_finite, 3) << at;
    EXPECT_EQ(sums.tokens, 4);
  }
}

TEST_P(KernelCrossEntropy, OfNoRowsIsZero) {
  kernels::LossSums sums = {.loss = 5.0, .tokens = 5, .non_finite = 5};
  const Tensor logits(Device{}, {0, 4}, DType::f32);
  const Tensor targets(Device{}, {0}, DType::i32);
  kernels::cross_entropy(stream_, logits, targets, {.vocabulary = 4}, &sums);
  stream_.synchronize();
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_EQ(sums.tokens, 0);
  EXPECT_EQ(sums.non_finite, 0);
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelCrossEntropy);

}  // namespace
}  // namespace lockstep
