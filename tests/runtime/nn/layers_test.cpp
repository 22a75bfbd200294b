// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

constexpr float kStep = 0.0625F;

// Compares a layer's backward with differences of its forward.
//
// The objective is Σ y·r with fixed r, added in f64. Central differences with steps h and h/2,
// extrapolated (Richardson), leave an error of order h⁴ beside the rounding of f32.
class Differences {
 public:
  Differences(Stream& stream, Module& layer, Tensor x, std::function<Tensor(const Tensor&)> forward)
      : stream_(&stream),
        parameters_(layer.parameters()),
        x_(std::move(x)),
        forward_(std::move(forward)) {
    unsigned seed = 100;
    for (Parameter* parameter : parameters_) fill_random(values_of(parameter->value()), seed++);
    // Weights of norms near 1, so that what is behind a norm keeps its size.
    for (Parameter* parameter : parameters_) {
      if (parameter->name().find("ln_") == std::string::npos) continue;
      for (float& value : values_of(parameter->value())) value = 1.0F + 0.3F * value;
    }
    weights_ = random_tensor(run().shape(), 7);
  }

  const Tensor& x() const { return x_; }
  const Tensor& output_gradient() const { return weights_; }
  Tensor run() {
    Tensor y = forward_(x_);
    stream_->synchronize();
    return y;
  }

  void expect_matches(std::span<float> values, std::span<const float> gradient,
                      const std::string& name) {
    ASSERT_EQ(values.size(), gradient.size());
    double scale = 0.0;
    for (const float g : gradient) scale = std::max(scale, std::abs(static_cast<double>(g)));
    ASSERT_GT(scale, 1e-3) << name << ": a gradient of zeros proves nothing";
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double coarse = slope(values[i], kStep);
      const double fine = slope(values[i], kStep / 2);
      const double expected = (4.0 * fine - coarse) / 3.0;
      ASSERT_NEAR(gradient[i], expected, 1e-3 * std::max(scale, 1.0)) << name << " " << i;
    }
  }

  void expect_parameters_match() {
    for (Parameter* parameter : parameters_) {
      expect_matches(values_of(parameter->value()), values_of(parameter->grad()),
                     parameter->name());
    }
  }

 private:
  double objective() {
    const auto y = values_of(run());
    const auto r = values_of(weights_);
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * r[i];
    return sum;
  }

  double slope(float& value, float step) {
    const float middle = value;
    value = middle + step;
    const double above = objective();
    const double width_above = static_cast<double>(value) - middle;
    value = middle - step;
    const double below = objective();
    const double width = width_above + middle - static_cast<double>(value);
    value = middle;
    return (above - below) / width;
  }

  Stream* stream_;
  Parameters parameters_;
  Tensor x_;
  Tensor weights_;
  std::function<Tensor(const Tensor&)> forward_;
};

class Layers : public testing::Test {
 protected:
  template <typename Layer>
  void expect_gradients_match(Layer& layer, const Shape& shape) {
    Differences differences(stream_, layer, random_tensor(shape, 3),
                            [&](const Tensor& x) { return layer.forward(x); });
    GradientArena arena(layer.parameters());
    arena.open_pass(false);
    differences.run();
    const Tensor x_grad = random_tensor(shape, 4);  // rubbish that backward must overwrite
    layer.backward(differences.output_gradient(), {.grad = x_grad});
    stream_.synchronize();
    const std::vector<float> written = copy_of(x_grad);
    differences.expect_parameters_match();
    differences.expect_matches(values_of(differences.x()), written, "x");

    // The same again, added to what is there: everything doubles.
    const std::vector<float> once = copy_of(arena.memory());
    arena.open_pass(true);
    differences.run();
    layer.backward(differences.output_gradient(), {.grad = x_grad, .add = true});
    stream_.synchronize();
    expect_doubled(values_of(arena.memory()), once);
    expect_doubled(values_of(x_grad), written);
  }

  static void expect_doubled(std::span<const float> twice, std::span<const float> once) {
    for (std::size_t i = 0; i < once.size(); ++i) {
      ASSERT_NEAR(twice[i], 2.0F * once[i], 1e-5F * std::max(1.0F, std::abs(once[i]))) << i;
    }
  }

  Stream stream_{Device{}};
  Workspace workspace_{Device{}};
};

TEST_F(Layers, LayerNormHasTheGradientOfItsForward) {
  LayerNorm layer(stream_, "ln_1", 9);
  expect_gradients_match(layer, {2, 3, 9});
}

TEST_F(Layers, LinearHasTheGradientOfItsForward) {
  Linear layer(stream_, workspace_, "fc", 5, 7);
  expect_gradients_match(layer, {2, 3, 5});
}

TEST_F(Layers, AttentionHasTheGradientOfItsForward) {
  Attention layer(stream_, workspace_, "attn", 6, 2);
  expect_gradients_match(layer, {2, 5, 6});
}

TEST_F(Layers, MlpHasTheGradientOfItsForward) {
  Mlp layer(stream_, workspace_, "mlp", 5, 11);
  expect_gradients_match(layer, {2, 3, 5});
}

TEST_F(Layers, BlockTurnsTheGradientOfItsOutputIntoThatOfItsInput) {
  Block layer(stream_, workspace_, "h", 6, 2, 10, 1e-5F);
  Differences differences(stream_, layer, random_tensor({2, 4, 6}, 3),
                          [&](const Tensor& x) { return layer.forward(x); });
  GradientArena arena(layer.parameters());
  arena.open_pass(false);
  differences.run();
  const Tensor grad(Device{}, {2, 4, 6}, DType::f32);
  std::memcpy(grad.data(), differences.output_gradient().data(), grad.bytes());
  layer.backward(grad);
  stream_.synchronize();
  differences.expect_parameters_match();
  differences.expect_matches(values_of(differences.x()), copy_of(grad), "x");
}

TEST_F(Layers, LinearMultipliesByAWeightOfInTimesOut) {
  Linear layer(stream_, workspace_, "fc", 2, 3);
  const Parameters parameters = layer.parameters();
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  const std::vector<float> bias = {10, 20, 30};
  std::copy(weight.begin(), weight.end(), parameters[0]->value().as<float>());
  std::copy(bias.begin(), bias.end(), parameters[1]->value().as<float>());
  const Tensor y = layer.forward(tensor_of({1, 2}, std::vector<float>{1, 10}));
  stream_.synchronize();
  EXPECT_EQ(copy_of(y), (std::vector<float>{51, 72, 93}));
}

TEST_F(Layers, AttentionSeesNoLaterToken) {
  Attention layer(stream_, workspace_, "attn", 8, 2);
  unsigned seed = 1;
  for (Parameter* parameter : layer.parameters()) {
    fill_random(values_of(parameter->value()), seed++);
  }
  constexpr std::size_t past = std::size_t{4} * 8;  // elements of tokens 0 to 3
  const Tensor x = random_tensor({1, 6, 8}, 9);
  const Tensor y = layer.forward(x);
  stream_.synchronize();
  const std::vector<float> before = copy_of(y);
  for (float& value : values_of(x).subspan(past)) value += 1.0F;
  layer.forward(x);
  stream_.synchronize();
  const std::vector<float> after = copy_of(y);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + past, after.begin()));
  EXPECT_NE(before[past], after[past]);
}

TEST_F(Layers, RefuseWhatDoesNotFit) {
  Linear linear(stream_, workspace_, "fc", 2, 3);
  EXPECT_THROW(linear.forward(random_tensor({4, 3}, 1)), UsageError);
  EXPECT_THROW(Attention(stream_, workspace_, "attn", 6, 4), ConfigError);
  Attention attention(stream_, workspace_, "attn", 6, 2);
  EXPECT_THROW(attention.forward(random_tensor({4, 6}, 1)), UsageError);
}

TEST_F(Layers, RefusePassesThatDisagreeOnAdding) {
  LayerNorm layer(stream_, "ln_1", 4);
  const Tensor x = random_tensor({2, 4}, 1);
  layer.forward(x);
  const Parameters parameters = layer.parameters();
  parameters[0]->begin_pass(Tensor::zeros(Device{}, {4}, DType::f32), true);
  parameters[1]->begin_pass(Tensor::zeros(Device{}, {4}, DType::f32), false);
  EXPECT_THROW(layer.backward(x, {.grad = random_tensor({2, 4}, 2)}), UsageError);
}

}  // namespace
}  // namespace lockstep::nn
