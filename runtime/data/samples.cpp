// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/samples.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/kernels.h"
#include "lockstep/core/error.h"
#include "lockstep/core/rng.h"

namespace lockstep {
namespace {

// Sample `sample` into row `row`; a negative one is an empty row.
void write_row(const TokenStream& stream, std::int64_t sample, std::int64_t row,
               const Batch& batch) {
  const std::int64_t context = batch.tokens.dim(1);
  std::int32_t* tokens = batch.tokens.as<std::int32_t>() + row * context;
  std::int32_t* targets = batch.targets.as<std::int32_t>() + row * context;
  const std::int64_t begin = sample < 0 ? stream.size() : sample * context;
  const std::int64_t there = std::min(context + 1, stream.size() - begin);  // with the last target
  std::vector<std::int32_t> read(static_cast<std::size_t>(there));
  stream.read(begin, read);
  for (std::int64_t t = 0; t < context; ++t) {
    tokens[t] = t < there ? read[static_cast<std::size_t>(t)] : 0;
    targets[t] = t + 1 < there ? read[static_cast<std::size_t>(t + 1)] : kernels::kIgnoredTarget;
  }
}

}  // namespace

std::int64_t sample_count(std::int64_t tokens, std::int64_t context) noexcept {
  return tokens < 2 ? 0 : (tokens - 1 + context - 1) / context;
}

std::vector<std::int64_t> epoch_order(std::int64_t samples, std::uint64_t seed,
                                      std::int64_t epoch) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const auto x =
        philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    static_cast<std::uint32_t>(epoch), 0},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    keyed[static_cast<std::size_t>(i)] = {x[0] | static_cast<std::uint64_t>(x[1]) << 32, i};
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& entry : keyed) order.push_back(entry.second);
  return order;
}

Batch make_batch(std::int64_t rows, std::int64_t context) {
  return {.tokens = Tensor({}, {rows, context}, DType::i32),
          .targets = Tensor({}, {rows, context}, DType::i32)};
}

SampleSequence::SampleSequence(const TokenStream& stream, std::int64_t context,
                               std::int64_t global_batch, std::int64_t micro_batch,
                               std::uint64_t seed)
    : stream_(stream),
      context_(context),
      global_batch_(global_batch),
      micro_batch_(micro_batch),
      seed_(seed),
      samples_(sample_count(stream.size(), context)) {
  if (samples_ == 0) {
    throw ConfigError(
        "data.source: " + std::to_string(stream.size()) + " tokens train, which is not one sample",
        "a sample needs two tokens; give more text, or data.eval so that all of "
        "data.source trains");
  }
}

std::int64_t SampleSequence::steps_per_epoch() const noexcept {
  return (samples_ + global_batch_ - 1) / global_batch_;
}

void SampleSequence::seek(SampleCursor cursor) {
  if (cursor.epoch < 0 || cursor.position < 0 || cursor.position >= samples_) {
    throw ConfigError("data position " + std::to_string(cursor.position) + " of epoch " +
                          std::to_string(cursor.epoch) + " is outside " + std::to_string(samples_) +
                          " samples",
                      "resume with the data that the checkpoint was trained on");
  }
  cursor_ = cursor;
}

bool SampleSequence::has_samples(std::int64_t leaf) const noexcept {
  return cursor_.position + leaf * micro_batch_ < samples_;
}

void SampleSequence::read_leaf(std::int64_t leaf, const Batch& batch) {
  const auto& samples = order();
  for (std::int64_t row = 0; row < micro_batch_; ++row) {
    const std::int64_t at = cursor_.position + leaf * micro_batch_ + row;
    write_row(stream_, at < samples_ ? samples[static_cast<std::size_t>(at)] : -1, row, batch);
  }
}

void SampleSequence::advance() {
  cursor_.position += global_batch_;
  if (cursor_.position >= samples_) cursor_ = {.epoch = cursor_.epoch + 1, .position = 0};
}

const std::vector<std::int64_t>& SampleSequence::order() {
  if (ordered_epoch_ != cursor_.epoch) {
    order_ = epoch_order(samples_, seed_, cursor_.epoch);
    ordered_epoch_ = cursor_.epoch;
  }
  return order_;
}

void read_samples(const TokenStream& stream, std::int64_t first, std::int64_t end,
                  const Batch& batch) {
  for (std::int64_t row = 0; row < batch.tokens.dim(0); ++row) {
    write_row(stream, first + row < end ? first + row : -1, row, batch);
  }
}

}  // namespace lockstep
