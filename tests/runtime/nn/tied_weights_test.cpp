// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/kernels.h"
#include "lockstep/optim/clip.h"
#include "lockstep/runtime/loss.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

// Embedding and head share E, without anything in between; P19 of the reference cases.
TEST(TiedWeights, AddBothUsesIntoOneGradientThatCountsOnce) {
  Stream stream{Device{}};
  Parameter table(Device{}, "wte.weight", {3, 2});
  const std::vector<float> values = {1, 0, 0, 1, 1, 1};
  std::copy(values.begin(), values.end(), table.value().as<float>());
  GradientArena arena({&table});
  arena.open_pass(false);
  const Tensor token = tensor_of({1, 1}, std::vector<std::int32_t>{2});
  const Tensor position = Tensor::zeros(Device{}, {1, 2}, DType::f32);
  const Tensor position_grad(Device{}, {1, 2}, DType::f32);
  const Tensor x(Device{}, {1, 1, 2}, DType::f32);
  const Tensor x_grad(Device{}, {1, 1, 2}, DType::f32);
  const Tensor logits(Device{}, {1, 3}, DType::f32);

  kernels::embedding_forward(stream, token, table.value(), position, x);
  kernels::gemm(stream, x, table.value(), logits, {.transpose_b = true});
  stream.synchronize();
  EXPECT_EQ(copy_of(logits), (std::vector<float>{1, 1, 2}));

  LeafSums sums;
  CrossEntropy loss(stream);
  const Tensor grad =
      loss.forward_backward(logits, tensor_of({1}, std::vector<std::int32_t>{0}), &sums);
  const GradientSlot head = table.next_gradient();
  kernels::gemm(stream, grad, x, head.grad, {.transpose_a = true, .add = head.add});
  kernels::gemm(stream, grad, table.value(), x_grad);
  const GradientSlot embedding = table.next_gradient();
  kernels::embedding_backward(stream, token, x_grad, embedding.grad, embedding.add, position_grad,
                              false);
  stream.synchronize();

  EXPECT_NEAR(sums.loss, 1.551444713932, 2e-6);
  const std::array<double, 6> expected = {-0.788058442, -0.788058442, 0.211941558,
                                          0.211941558,  0.364175327,  1.364175327};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(values_of(table.grad())[i], expected.at(i), 1e-6) << i;
  }
  const auto norm = optim::GlobalNorm({&table}, arena.plan()).measure(stream, arena.memory());
  EXPECT_NEAR(norm.of_sums, 1.823597723, 2e-6);
}

}  // namespace
}  // namespace lockstep::nn
