// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

struct Sizes {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t model() const { return heads * width; }
};

std::string to_string(const Sizes& s) {
  return "B " + std::to_string(s.batch) + " T " + std::to_string(s.length) + " H " +
         std::to_string(s.heads) + " d " + std::to_string(s.width);
}

// The textbook form in f64, with its T × T matrix; log_sum_exp [B, heads, T] on request.
Values attention(const Values& qkv, const Sizes& s, Values* log_sum_exp = nullptr) {
  Values y(static_cast<std::size_t>(s.batch * s.length * s.model()), 0.0);
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t part, std::int64_t h,
                      std::int64_t c) {
    return qkv[static_cast<std::size_t>(((b * s.length + t) * 3 + part) * s.model() + h * s.width +
                                        c)];
  };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.length; ++i) {
        Values scores;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0.0;
          for (std::int64_t c = 0; c < s.width; ++c) score += at(b, i, 0, h, c) * at(b, j, 1, h, c);
          scores.push_back(score / std::sqrt(static_cast<double>(s.width)));
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        for (double& score : scores) sum += score = std::exp(score - top);
        if (log_sum_exp != nullptr) log_sum_exp->push_back(top + std::log(sum));
        for (std::int64_t c = 0; c < s.width; ++c) {
          double value = 0.0;
          for (std::int64_t j = 0; j <= i; ++j) {
            value += scores[static_cast<std::size_t>(j)] / sum * at(b, j, 2, h, c);
          }
          y[static_cast<std::size_t>((b * s.length + i) * s.model() + h * s.width + c)] = value;
        }
      }
    }
  }
  return y;
}

class KernelAttention : public KernelTest {
 protected:
  void forward(const Tensor& qkv, const Sizes& s) {
    y_ = nan_tensor({s.batch, s.length, s.model()});
    log_sum_exp_ = nan_tensor({s.batch, s.heads, s.length});
    kernels::attention_forward(stream_, qkv, static_cast<int>(s.heads), y_, log_sum_exp_);
    stream_.synchronize();
  }
  Tensor backward(const Tensor& qkv, const Sizes& s, const Tensor& y_grad) {
    Tensor qkv_grad = nan_tensor(qkv.shape());
    kernels::attention_backward(stream_, qkv, y_, y_grad, log_sum_exp_, static_cast<int>(s.heads),
                                qkv_grad);
    stream_.synchronize();
    return qkv_grad;
  }
  Tensor y_;
  Tensor log_sum_exp_;
};

TEST_P(KernelAttention, MatchesTheTextbookFormForEveryLengthAndWidth) {
  // Lengths around the blocks of 48 queries and 64 keys, widths around the vectors.
  for (const std::int64_t length : {1, 5, 6, 47, 48, 49, 63, 65, 127, 128, 193}) {
    for (const std::int64_t width : {1, 3, 17, 32, 33, 64}) {
      const Sizes s = {.batch = 1, .length = length, .heads = 2, .width = width};
      const Tensor qkv = random_tensor({s.batch, length, 3 * s.model()}, 1, 2.0);
      forward(qkv, s);
      Values log_sum_exp;
      const Values wanted = attention(values_of(qkv), s, &log_sum_exp);
      expect_close(y_, wanted, 1e-6, to_string(s));
      expect_close(log_sum_exp_, log_sum_exp, 1e-6, to_string(s));
    }
  }
}

TEST_P(KernelAttention, TakesAnEmptyBatch) {
  const Sizes s = {.batch = 0, .length = 4, .heads = 2, .width = 3};
  const Tensor qkv(Device{}, {0, 4, 18}, DType::f32);
  EXPECT_NO_THROW(forward(qkv, s));
  EXPECT_NO_THROW(backward(qkv, s, Tensor(Device{}, {0, 4, 6}, DType::f32)));
}

TEST_P(KernelAttention, SurvivesScoresThatOverflowAnExponential) {
  const Sizes s = {.batch = 1, .length = 70, .heads = 1, .width = 4};
  const Tensor qkv = random_tensor({1, 70, 12}, 1, 60.0);
  forward(qkv, s);
  // Scores of 5000 have three digits behind the point in f32.
  expect_close(y_, attention(values_of(qkv), s), 1e-3);
}

TEST_P(KernelAttention, DoesNotSeeLaterPositions) {
  const Sizes s = {.batch = 1, .length = 100, .heads = 2, .width = 8};
  const Tensor qkv = random_tensor({1, 100, 48}, 1);
  forward(qkv, s);
  const Values before = values_of(y_);
  const Tensor later = qkv.reshape({100, 48}).rows(80, 100);
  std::fill_n(later.as<float>(), later.size(), 3.0F);
  forward(qkv, s);
  const Tensor earlier = y_.reshape({100, 16}).rows(0, 80);
  expect_close(earlier, Values(before.begin(), before.begin() + earlier.size()), 0.0);
  EXPECT_NE(values_of(y_), before);
}

TEST_P(KernelAttention, HandsANanOn) {
  const Sizes s = {.batch = 1, .length = 70, .heads = 1, .width = 8};
  const Tensor qkv = random_tensor({1, 70, 24}, 1);
  const auto row = [](const Tensor& x, std::int64_t position) {
    return x.reshape({70, x.dim(2)}).rows(position, position + 1).as<float>();
  };
  *row(qkv, 66) = std::numeric_limits<float>::quiet_NaN();  // in the query
  forward(qkv, s);
  EXPECT_TRUE(std::isnan(*row(y_, 66)));
  EXPECT_FALSE(std::isnan(*row(y_, 65)));
  EXPECT_TRUE(std::isnan(*row(backward(qkv, s, random_tensor({1, 70, 8}, 2)), 66)));
}

TEST_P(KernelAttention, BackwardMatchesFiniteDifferences) {
  const std::vector<Sizes> all = {{.batch = 2, .length = 7, .heads = 2, .width = 3},
                                  {.batch = 1, .length = 1, .heads = 1, .width = 5},
                                  {.batch = 1, .length = 70, .heads = 1, .width = 2}};
  for (const Sizes& s : all) {
    const Tensor qkv = random_tensor({s.batch, s.length, 3 * s.model()}, 1);
    const Tensor y_grad = random_tensor({s.batch, s.length, s.model()}, 2);
    const Values upstream = values_of(y_grad);
    const Values slope =
        slope_of([&](const Values& x) { return dot(attention(x, s), upstream); }, values_of(qkv));
    forward(qkv, s);
    expect_close(backward(qkv, s, y_grad), slope, 1e-5, to_string(s));
  }
}

TEST_P(KernelAttention, BackwardOfLongSequencesMatchesSlopesAlongRandomDirections) {
  for (const std::int64_t length : {47, 48, 49, 64, 65, 127, 193}) {
    for (const std::int64_t width : {16, 33}) {
      const Sizes s = {.batch = 1, .length = length, .heads = 1, .width = width};
      const Tensor qkv = random_tensor({1, length, 3 * width}, 1, 2.0);
      const Tensor y_grad = random_tensor({1, length, width}, 2);
      forward(qkv, s);
      const Values gradient = values_of(backward(qkv, s, y_grad));
      const Values start = values_of(qkv);
      const Values upstream = values_of(y_grad);
      const auto columns = static_cast<std::size_t>(width);
      for (std::size_t part = 0; part < 3; ++part) {  // query, key, value
        Values direction = values_of(random_tensor(qkv.shape(), 3));
        for (std::size_t i = 0; i < direction.size(); ++i) {
          if (i % (3 * columns) / columns != part) direction[i] = 0.0;
        }
        Values above = start;
        Values below = start;
        for (std::size_t i = 0; i < direction.size(); ++i) {
          above[i] += kStep * direction[i];
          below[i] -= kStep * direction[i];
        }
        const double wanted =
            (dot(attention(above, s), upstream) - dot(attention(below, s), upstream)) /
            (2.0 * kStep);
        EXPECT_NEAR(dot(gradient, direction), wanted, 1e-4) << to_string(s) << " part " << part;
      }
    }
  }
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelAttention);

}  // namespace
}  // namespace lockstep
