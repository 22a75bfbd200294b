// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/index_check.h"
#include "core/cuda/kernel_support.h"

namespace lockstep::kernels::cuda {
namespace {

void queue(Stream& stream, const Tensor& logits, const Tensor& targets,
           const CrossEntropyOptions& options, LossSums* sums, bool gradient) {
  const Matrix shape = as_matrix(logits);
  const std::int32_t* labels = targets.as<std::int32_t>();
  const IndexCheck check = check_indices(stream, targets, options.vocabulary, kIgnoredTarget);
  const Tensor losses(stream.device(), {shape.rows}, DType::f32);
  if (shape.rows > 0) {
    launch(gpu::kCrossEntropy,
           grid_of(std::min(shape.rows, std::int64_t{1} << 30), 1, gpu::kCrossEntropyThreads),
           gpu::CrossEntropyArgs{.logits = logits.as<float>(),
                                 .targets = labels,
                                 .ignored = kIgnoredTarget,
                                 .losses = losses.as<float>(),
                                 .rows = shape.rows,
                                 .columns = shape.columns,
                                 .vocabulary = options.vocabulary,
                                 .smoothing = options.smoothing,
                                 .gradient_scale = options.gradient_scale,
                                 .gradient = gradient,
                                 .skip = check.skip},
           stream);
  }
  launch(gpu::kLossSums, grid_of(1, 1, gpu::kLossSumsThreads),
         gpu::LossSumsArgs{.losses = losses.as<float>(),
                           .targets = labels,
                           .ignored = kIgnoredTarget,
                           .rows = shape.rows,
                           .loss = &sums->loss,
                           .tokens = &sums->tokens,
                           .non_finite = &sums->non_finite,
                           .skip = check.skip},
         stream);
  if (check.skip == nullptr) return;
  stream.enqueue([bad = check.bad, vocabulary = options.vocabulary] {
    if (bad->found != 0) refuse_target(bad->value, bad->position, vocabulary);
  });
}

}  // namespace

void cross_entropy(Stream& stream, const Tensor& logits_to_gradient, const Tensor& targets,
                   CrossEntropyOptions options, LossSums* sums) {
  queue(stream, logits_to_gradient, targets, options, sums, true);
}

void cross_entropy_loss(Stream& stream, const Tensor& logits, const Tensor& targets,
                        CrossEntropyOptions options, LossSums* sums) {
  queue(stream, logits, targets, options, sums, false);
}

}  // namespace lockstep::kernels::cuda
