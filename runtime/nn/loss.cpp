// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/loss.h"

#include <string>

#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::nn {

static_assert(kIgnoredTarget == kernels::kIgnoredTarget);

struct CrossEntropy::State {
  Stream* stream;
  CrossEntropyOptions options;
  kernels::LossSums sums;  // of the work in flight; the stream alone touches it
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

CrossEntropy::CrossEntropy(Stream& stream, CrossEntropyOptions options)
    : state_(std::make_shared<State>(State{&stream, options, {}})) {
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
                         &state_->sums);
  // The task holds the state, so that the kernel's output outlives this object.
  stream.enqueue([state = state_, sums] {
    *sums = {state->sums.loss, state->sums.tokens, state->sums.non_finite};
  });
  return logits;
}

void CrossEntropy::evaluate(const Tensor& logits, const Tensor& targets, LeafSums* sums) {
  Stream& stream = *state_->stream;
  kernels::cross_entropy_loss(
      stream, logits, targets,
      kernel_options(logits, {.vocabulary = state_->options.vocabulary, .smoothing = 0.0F}),
      &state_->sums);
  stream.enqueue([state = state_, sums] {
    *sums = {state->sums.loss, state->sums.tokens, state->sums.non_finite};
  });
}

}  // namespace lockstep::nn
