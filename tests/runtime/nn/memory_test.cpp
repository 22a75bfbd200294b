// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/runtime/gpt2.h"
#include "lockstep/runtime/loss.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/runtime/nn/values.h"

namespace {

// Of this thread: modules allocate where they are called, kernels take their small scratch on the
// stream's worker.
thread_local int allocations = 0;

}  // namespace

// The allocator of lockstep::Tensor, counted.
extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
  ++allocations;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

namespace lockstep::nn {
namespace {

TEST(Memory, IsTakenInTheFirstPassAndReusedAfterwards) {
  Stream stream{Device{}};
  Gpt2 model(stream, {.layers = 2, .heads = 2, .hidden = 16, .vocab = 20, .context = 8});
  model.initialize(1);
  CrossEntropy loss(stream);
  LeafSums sums;
  GradientArena arena(model.parameters());
  const Tensor tokens = random_tokens({3, 8}, 20, 1);
  const Tensor targets = random_tokens({3, 8}, 20, 2);
  const auto train = [&] {
    arena.open_pass(false);
    model.backward(loss.forward_backward(model.forward(tokens), targets, &sums));
    stream.synchronize();
  };

  const int before = allocations;
  train();
  EXPECT_GT(allocations, before) << "the counter does not see the allocator";
  const int after_first = allocations;
  train();
  // Evaluation of a smaller batch, sampling of a shorter text, and back.
  loss.evaluate(model.forward(tokens.rows(0, 2)), targets.rows(0, 2), &sums);
  model.forward(tokens.rows(0, 1).reshape({2, 4}));
  train();
  EXPECT_EQ(allocations, after_first);
}

TEST(Buffer, GrowsWhenItMustAndKeepsItsMemoryOtherwise) {
  Buffer buffer{Device{}};
  const void* first = buffer.get({4, 4}).data();
  EXPECT_EQ(buffer.get({2, 3}).data(), first);
  EXPECT_EQ(buffer.get({2, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(buffer.get({16}).data(), first);
  const int before = allocations;
  EXPECT_EQ(buffer.get({5, 5}).size(), 25);
  EXPECT_EQ(allocations, before + 1);
}

TEST(Buffer, LeavesAHandedOutTensorItsMemory) {
  Buffer buffer{Device{}};
  const Tensor small = buffer.get({2});
  small.as<float>()[1] = 7.0F;
  const Tensor large = buffer.get({100});
  EXPECT_NE(large.data(), small.data());
  EXPECT_EQ(small.as<float>()[1], 7.0F);
}

}  // namespace
}  // namespace lockstep::nn
