// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/core/tensor.h"
#include "lockstep/runtime/token_stream.h"

namespace lockstep {

/// Samples of `context` targets in a stream of `tokens`: ⌈(tokens − 1) / context⌉.
std::int64_t sample_count(std::int64_t tokens, std::int64_t context) noexcept;

/// The order of an epoch: samples sorted by a Philox number of (seed, epoch, sample), ties by
/// index.
std::vector<std::int64_t> epoch_order(std::int64_t samples, std::uint64_t seed, std::int64_t epoch);

/// What one forward/backward sees.
struct Batch {
  Tensor tokens;   // [B, T] i32
  Tensor targets;  // [B, T] i32, kernels::kIgnoredTarget where there is none
};

/// Where a run stands in its data; independent of the number of ranks.
struct SampleCursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // in the epoch's order, a multiple of the global batch
};

/// The one global sequence of training samples and its batches. One thread.
class SampleSequence {
 public:
  /// `stream` must outlive this. Throws ConfigError if it holds no sample.
  SampleSequence(const TokenStream& stream, std::int64_t context, std::int64_t global_batch,
                 std::int64_t micro_batch, std::uint64_t seed);

  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t steps_per_epoch() const noexcept;
  const SampleCursor& cursor() const noexcept { return cursor_; }
  /// Throws ConfigError for a position outside the epoch.
  void seek(SampleCursor cursor);

  /// Whether leaf `leaf` of the current step has any sample.
  bool has_samples(std::int64_t leaf) const noexcept;
  /// Writes leaf `leaf` of the current step into `batch` [micro, context]; rows without a sample
  /// are zeros with ignored targets.
  void read_leaf(std::int64_t leaf, const Batch& batch);
  /// On to the next step's samples.
  void advance();

 private:
  const std::vector<std::int64_t>& order();

  const TokenStream& stream_;
  std::int64_t context_;
  std::int64_t global_batch_;
  std::int64_t micro_batch_;
  std::uint64_t seed_;
  std::int64_t samples_;
  SampleCursor cursor_;
  std::int64_t ordered_epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// Writes samples [first, first + B) of `stream`, unshuffled, into `batch` [B, T]; those from `end`
/// on are rows of zeros with ignored targets.
void read_samples(const TokenStream& stream, std::int64_t first, std::int64_t end,
                  const Batch& batch);

/// An uninitialised batch of [rows, context].
Batch make_batch(std::int64_t rows, std::int64_t context);

}  // namespace lockstep
