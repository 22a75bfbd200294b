// SPDX-License-Identifier: Apache-2.0
// Same shapes, same bits: again, and wherever the memory begins.
#include <cstring>

#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

// Runs one kernel on inputs passed through `place`, which decides where they lie, and returns all
// that the kernel has written.
using Place = std::function<Tensor(const Tensor&)>;
using Outputs = std::vector<Tensor>;
using Run = std::function<Outputs(Stream&, const Place&)>;

struct Kernel {
  const char* name;
  Run run;
};

Outputs run_gemm(Stream& stream, const Place& place) {
  Outputs outputs;
  for (int mode = 0; mode < 8; ++mode) {
    for (const Shape& sizes : {Shape{33, 17, 65}, Shape{128, 96, 256}, Shape{1, 70, 40}}) {
      const kernels::GemmOptions options = {
          .transpose_a = (mode & 1) != 0, .transpose_b = (mode & 2) != 0, .add = (mode & 4) != 0};
      const std::int64_t m = sizes[0];
      const std::int64_t n = sizes[1];
      const std::int64_t k = sizes[2];
      const Tensor a = place(random_tensor(options.transpose_a ? Shape{k, m} : Shape{m, k}, 1));
      const Tensor b = place(random_tensor(options.transpose_b ? Shape{n, k} : Shape{k, n}, 2));
      outputs.push_back(place(random_tensor({m, n}, 3)));
      kernels::gemm(stream, a, b, outputs.back(), options);
    }
  }
  return outputs;
}

Outputs run_elementwise(Stream& stream, const Place& place) {
  const Tensor x = place(random_tensor({9, 67}, 1, 4.0));
  const Tensor bias = place(random_tensor({67}, 2));
  const Tensor y = place(nan_tensor({9, 67}));
  const Tensor slope = place(random_tensor({9, 67}, 3));
  const Tensor sums = place(nan_tensor({67}));
  kernels::bias_gelu_forward(stream, bias, x, y);
  kernels::gelu_backward(stream, x, slope, slope);
  kernels::add_bias(stream, bias, y);
  kernels::add(stream, x, y);
  kernels::bias_backward(stream, y, sums, false);
  return {x, y, slope, sums};
}

Outputs run_layer_norm(Stream& stream, const Place& place) {
  const Tensor x = place(random_tensor({70, 67}, 1));
  const Tensor weight = place(random_tensor({67}, 2));
  const Tensor y = place(nan_tensor({70, 67}));
  const Tensor mean = place(nan_tensor({70}));
  const Tensor rstd = place(nan_tensor({70}));
  const kernels::LayerNormGradients gradients = {.x = place(nan_tensor({70, 67})),
                                                 .weight = place(nan_tensor({67})),
                                                 .bias = place(nan_tensor({67}))};
  kernels::layer_norm_forward(stream, x, weight, place(random_tensor({67}, 3)), 1e-5F, y, mean,
                              rstd);
  kernels::layer_norm_backward(stream, place(random_tensor({70, 67}, 4)), x, weight, mean, rstd,
                               gradients);
  return {y, mean, rstd, gradients.x, gradients.weight, gradients.bias};
}

Outputs run_attention(Stream& stream, const Place& place) {
  const Tensor qkv = place(random_tensor({2, 101, 99}, 1));
  const Tensor y = place(nan_tensor({2, 101, 33}));
  const Tensor log_sum_exp = place(nan_tensor({2, 3, 101}));
  const Tensor qkv_grad = place(nan_tensor({2, 101, 99}));
  kernels::attention_forward(stream, qkv, 3, y, log_sum_exp);
  kernels::attention_backward(stream, qkv, y, place(random_tensor({2, 101, 33}, 2)), log_sum_exp, 3,
                              qkv_grad);
  return {y, log_sum_exp, qkv_grad};
}

Outputs run_cross_entropy(Stream& stream, const Place& place) {
  const Tensor logits = place(random_tensor({5, 67}, 1, 4.0));
  const Tensor targets = place(indices_of({5}, {0, 1, -100, 60, 30}));
  Tensor loss(Device{}, {1}, DType::f64);
  kernels::LossSums sums;
  kernels::cross_entropy(stream, logits, targets, {.vocabulary = 61, .smoothing = 0.1F}, &sums);
  stream.synchronize();
  loss.as<double>()[0] = sums.loss;
  return {logits, loss};
}

Outputs run_embedding(Stream& stream, const Place& place) {
  const Tensor tokens = place(indices_of({2, 3}, {4, 0, 4, 4, 1, 0}));
  const Tensor words = place(random_tensor({5, 33}, 1));
  const Tensor places = place(random_tensor({3, 33}, 2));
  const Tensor y = place(nan_tensor({2, 3, 33}));
  kernels::embedding_forward(stream, tokens, words, places, y);
  kernels::embedding_backward(stream, tokens, y, words, true, places, true);
  return {y, words, places};
}

Outputs run_optimizers(Stream& stream, const Place& place) {
  const Tensor w = place(random_tensor({67}, 1));
  const Tensor g = place(random_tensor({67}, 2));
  const Tensor m = place(random_tensor({67}, 3));
  const Tensor v = place(tensor_of({67}, std::vector<float>(67, 0.3F)));
  const Tensor buffer = place(random_tensor({67}, 4));
  Tensor sums(Device{}, {3}, DType::f64);
  kernels::adamw(stream, w, g, m, v, {.learning_rate = 0.01F, .weight_decay = 0.1F, .t = 3});
  kernels::sgd(stream, w, g, buffer, {.learning_rate = 0.01F, .momentum = 0.9F, .t = 3});
  kernels::block_square_sums(stream, w, 30, sums.as<double>());
  return {w, m, v, buffer, sums};
}

class KernelBits : public KernelTest {};

TEST_P(KernelBits, AreTheSameForEveryRunAndAlignment) {
  const std::vector<Kernel> all = {{"gemm", run_gemm},
                                   {"elementwise", run_elementwise},
                                   {"layer norm", run_layer_norm},
                                   {"attention", run_attention},
                                   {"cross entropy", run_cross_entropy},
                                   {"embedding", run_embedding},
                                   {"optimizers", run_optimizers}};
  const Place aligned = [](const Tensor& tensor) { return tensor; };
  for (const Kernel& kernel : all) {
    const Outputs first = kernel.run(stream_, aligned);
    const Outputs again = kernel.run(stream_, aligned);
    const Outputs unaligned = kernel.run(stream_, unaligned_copy);
    stream_.synchronize();
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(std::memcmp(first[i].data(), again[i].data(), first[i].bytes()), 0)
          << kernel.name << ", output " << i << ", again";
      EXPECT_EQ(std::memcmp(first[i].data(), unaligned[i].data(), first[i].bytes()), 0)
          << kernel.name << ", output " << i << ", unaligned";
    }
  }
}

LOCKSTEP_ON_EVERY_INSTRUCTION_SET(KernelBits);

}  // namespace
}  // namespace lockstep
