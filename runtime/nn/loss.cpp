// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/loss.h"

#include <string>

#include "core/host_memory.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::nn {

static_assert(kIgnoredTarget == kernels::kIgnoredTarget);

struct CrossEntropy::State {
  Stream* stream;
  CrossEntropyOptions options;
  // Of the work in flight; the stream alone touches it.
  std::shared_ptr<kernels::LossSums> sums;
};

namespace {

kernels::CrossEntropyOptions kernel_options(const Tensor& logits, CrossEntropyOptions options,
                                            float scale = 1.0F) {
  const std::int64_t columns = logits.shape().empty() ? 0 : logits.shape().back();
  return {.vocabulary = options.vocabulary > 0 ? options.vocabulary : columns,
          .smoothing = options.smoothing,
          .gradient_scale = scale};
}

}  // namespace

void CrossEntropy::queue_result(const std::shared_ptr<State>& state, LeafSums* sums) {
  // The task holds the state, so that the kernel's output outlives this object.
  state->stream->enqueue([state, sums] {
    *sums = {state->sums->loss, state->sums->tokens, state->sums->non_finite};
  });
}

CrossEntropy::CrossEntropy(Stream& stream, CrossEntropyOptions options)
    : state_(std::make_shared<State>(State{&stream, options,
                                           std::static_pointer_cast<kernels::LossSums>(host_memory(
                                               stream.device(), sizeof(kernels::LossSums)))})) {
  if (!(options.smoothing >= 0.0F && options.smoothing < 1.0F)) {
    throw ConfigError("loss.smoothing = " + std::to_string(options.smoothing),
                      "give a number from 0 to below 1");
  }
}

CrossEntropy::~CrossEntropy() = default;

Tensor CrossEntropy::forward_backward(const Tensor& logits, const Tensor& targets, LeafSums* sums,
                                      float scale) {
  Stream& stream = *state_->stream;
  kernels::cross_entropy(stream, logits, targets, kernel_options(logits, state_->options, scale),
                         state_->sums.get());
  queue_result(state_, sums);
  return logits;
}

void CrossEntropy::evaluate(const Tensor& logits, const Tensor& targets, LeafSums* sums) {
  Stream& stream = *state_->stream;
  kernels::cross_entropy_loss(
      stream, logits, targets,
      kernel_options(logits, {.vocabulary = state_->options.vocabulary, .smoothing = 0.0F}),
      state_->sums.get());
  queue_result(state_, sums);
}

}  // namespace lockstep::nn
