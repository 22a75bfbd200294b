// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/collectives/reducer.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::nn {

/// The label that counts in neither loss nor tokens.
inline constexpr std::int32_t kIgnoredTarget = -100;

struct CrossEntropyOptions {
  /// Real columns of the logits; those behind it are padding. 0: all.
  std::int64_t vocabulary = 0;
  /// Target weight 1 − s + s/V, the others s/V.
  float smoothing = 0.0F;
};

/// Softmax cross-entropy, summed (never averaged) over the valid targets of a micro-batch.
///
/// logits [N, V] f32, targets [N] or [B, T] i32. A target that is neither ignored nor in the
/// vocabulary is a DataError that names row and value; it fails the stream.
class CrossEntropy {
 public:
  /// `stream` must outlive the object. Throws ConfigError if smoothing is not in [0, 1).
  explicit CrossEntropy(Stream& stream, CrossEntropyOptions options = {});
  ~CrossEntropy();
  CrossEntropy(const CrossEntropy&) = delete;
  CrossEntropy& operator=(const CrossEntropy&) = delete;

  /// Queues the loss and its gradient, which takes the logits' memory and is returned; the gradient
  /// times `scale` (optim::LossScaler). `sums` is written by the stream and must outlive the work.
  Tensor forward_backward(const Tensor& logits, const Tensor& targets, LeafSums* sums,
                          float scale = 1.0F);
  /// The loss alone, without smoothing, for evaluation. The logits are unspecified afterwards.
  void evaluate(const Tensor& logits, const Tensor& targets, LeafSums* sums);

 private:
  struct State;
  static void queue_result(const std::shared_ptr<State>& state, LeafSums* sums);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::nn
