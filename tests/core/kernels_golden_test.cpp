// SPDX-License-Identifier: Apache-2.0
// Against numbers that PyTorch computed: tests/golden/make_kernel_golden.py.
#include "tests/core/kernels_support.h"
#include "tests/support/golden.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

Tensor indices_of(const Tensor& values) {
  Tensor indices(Device{}, values.shape(), DType::i32);
  for (std::size_t i = 0; i < count_of(values); ++i) {
    indices.as<std::int32_t>()[i] = static_cast<std::int32_t>(values.as<float>()[i]);
  }
  return indices;
}

class KernelGolden : public KernelTest {
 protected:
  void expect(const Tensor& actual, const std::string& name, double tolerance) {
    expect_close(actual, values_of(golden_.tensor(name)), tolerance, name);
  }
  Golden golden_{"kernels"};
};

TEST_P(KernelGolden, LayerNormEqualsPyTorch) {
  for (const std::string name : {"layer_norm", "layer_norm_shifted"}) {
    const Tensor x = golden_.tensor(name + ".x");
    const Tensor weight = golden_.tensor(name + ".weight");
    const Tensor y = nan_tensor(x.shape());
    const Tensor mean = nan_tensor({x.dim(0)});
    const Tensor rstd = nan_tensor({x.dim(0)});
    const kernels::LayerNormGradients gradients = {.x = nan_tensor(x.shape()),
                                                   .weight = nan_tensor(weight.shape()),
                                                   .bias = nan_tensor(weight.shape())};
    kernels::layer_norm_forward(stream_, x, weight, golden_.tensor(name + ".bias"), 1e-5F, y, mean,
                                rstd);
    kernels::layer_norm_backward(stream_, golden_.tensor(name + ".y_grad"), x, weight, mean, rstd,
                                 gradients);
    stream_.synchronize();
    // A mean of 100 costs two of the seven digits of f32.
    const double tolerance = name == "layer_norm" ? 1e-6 : 2e-5;
    expect(y, name + ".y", tolerance);
    expect(gradients.x, name + ".x_grad", tolerance);
    expect(gradients.weight, name + ".weight_grad", tolerance);
    expect(gradients.bias, name + ".bias_grad", tolerance);
  }
}

TEST_P(KernelGolden, GeluEqualsPyTorch) {
  const Tensor x = golden_.tensor("gelu.x");
  const Tensor y = nan_tensor(x.shape());
  const Tensor x_grad = nan_tensor(x.shape());
  kernels::gelu_forward(stream_, x, y);
  kernels::gelu_backward(stream_, x, golden_.tensor("gelu.y_grad"), x_grad);
  stream_.synchronize();
  expect(y, "gelu.y", 2e-7);
  expect(x_grad, "gelu.x_grad", 5e-7);
}

TEST_P(KernelGolden, AttentionEqualsPyTorch) {
  for (const std::string name : {"attention_32", "attention_64", "attention_odd"}) {
    const Tensor qkv = golden_.tensor(name + ".qkv");
    const Tensor y_grad = golden_.tensor(name + ".y_grad");
    const Tensor log_sum_exp = nan_tensor(golden_.tensor(name + ".log_sum_exp").shape());
    const int heads = static_cast<int>(log_sum_exp.dim(1));
    const Tensor y = nan_tensor(y_grad.shape());
    const Tensor qkv_grad = nan_tensor(qkv.shape());
    kernels::attention_forward(stream_, qkv, heads, y, log_sum_exp);
    kernels::attention_backward(stream_, qkv, y, y_grad, log_sum_exp, heads, qkv_grad);
    stream_.synchronize();
    expect(y, name + ".y", 1e-6);
    expect(log_sum_exp, name + ".log_sum_exp", 1e-6);
    expect(qkv_grad, name + ".qkv_grad", 1e-6);
  }
}

TEST_P(KernelGolden, CrossEntropyEqualsPyTorch) {
  for (const std::string name : {"cross_entropy", "cross_entropy_smooth"}) {
    const Tensor logits = golden_.tensor(name + ".logits");
    kernels::LossSums sums;
    kernels::cross_entropy(stream_, logits, indices_of(golden_.tensor(name + ".targets")),
                           {.vocabulary = 61, .smoothing = name == "cross_entropy" ? 0.0F : 0.1F},
                           &sums);
    stream_.synchronize();
    EXPECT_EQ(sums.tokens, logits.dim(0) - 1);
    const double wanted = values_of(golden_.tensor(name + ".loss"))[0];
    EXPECT_NEAR(sums.loss / wanted, 1.0, 2e-7);
    expect(logits, name + ".logits_grad", 2e-7);
  }
}

TEST_P(KernelGolden, OptimizersEqualPyTorchAfterThreeSteps) {
  const Tensor w = golden_.tensor("adamw.w0");
  const Tensor m = Tensor::zeros(Device{}, w.shape(), DType::f32);
  const Tensor v = Tensor::zeros(Device{}, w.shape(), DType::f32);
  const Tensor sgd_w = golden_.tensor("sgd.w0");
  const Tensor buffer = nan_tensor(w.shape());
  for (std::int64_t t = 1; t <= 3; ++t) {
    const std::string step = std::to_string(t);
    kernels::adamw(
        stream_, w, golden_.tensor("adamw.g" + step), m, v,
        {.learning_rate = 1e-2F, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1F, .t = t});
    kernels::sgd(stream_, sgd_w, golden_.tensor("sgd.g" + step), buffer,
                 {.learning_rate = 1e-2F,
                  .momentum = 0.9F,
                  .weight_decay = 0.01F,
                  .nesterov = true,
                  .t = t});
    stream_.synchronize();
    expect(w, "adamw.w" + step, 2e-7);
    expect(sgd_w, "sgd.w" + step, 2e-7);
  }
  expect(m, "adamw.exp_avg", 2e-7);
  expect(v, "adamw.exp_avg_sq", 2e-7);
  expect(buffer, "sgd.momentum_buffer", 2e-7);
}

TEST_P(KernelGolden, EmbeddingEqualsPyTorch) {
  const Tensor tokens = indices_of(golden_.tensor("embedding.tokens"));
  const Tensor words = golden_.tensor("embedding.words");
  const Tensor places = golden_.tensor("embedding.places");
  const Tensor y_grad = golden_.tensor("embedding.y_grad");
  const Tensor y = nan_tensor(y_grad.shape());
  const Tensor words_grad = nan_tensor(words.shape());
  const Tensor places_grad = nan_tensor(places.shape());
  kernels::embedding_forward(stream_, tokens, words, places, y);
  kernels::embedding_backward(stream_, tokens, y_grad, words_grad, false, places_grad, false);
  stream_.synchronize();
  expect(y, "embedding.y", 1e-7);
  expect(words_grad, "embedding.words_grad", 3e-7);
  expect(places_grad, "embedding.places_grad", 1e-7);
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelGolden);

}  // namespace
}  // namespace lockstep
