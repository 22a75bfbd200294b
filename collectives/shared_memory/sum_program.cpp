// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/sum_program.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/shared_memory/sum_kernels.h"
#include "core/kernels.h"
#include "lockstep/core/hash.h"

namespace lockstep::shared_memory {
namespace {

// Floats in a block of intermediate sums. Few enough that the sums of a tree fit into 32 KiB, and
// that the next block's lines are all under way before it begins.
constexpr std::size_t kBlock = 256;
// A single addition asks for lines so many floats ahead: measured on two cores with and without a
// common cache, 64 takes 0.8 to 0.9 of the time of 256 from 64 KiB to 4 MiB.
constexpr std::size_t kAheadOfOneAdd = 64;
constexpr std::size_t kFewOuts = 2;  // of a single addition: two ranks, or the own half only

std::size_t to_size(int index) { return static_cast<std::size_t>(index); }

// Whether the last addition makes the sum as it is to be stored.
bool ends_in_result(const SumPlan& plan) noexcept {
  return plan.sum_type == DType::f32 && !plan.adds.empty() && plan.adds.back().into == plan.result;
}

// How far ahead of `n` elements lines are asked for; of `there` elements only, since others write
// to what lies beyond.
FetchAhead ahead_of(std::size_t n, std::size_t there, std::size_t distance, Direction direction) {
  const auto offset = static_cast<std::ptrdiff_t>(distance);
  if (direction == Direction::downward) return {.offset = -offset, .first = distance, .last = n};
  return {.offset = offset, .last = std::min(n, there - std::min(there, distance))};
}

// A plan at work: where every part and output is, in the block at hand.
class Block {
 public:
  Block(const SumPlan& plan, std::span<const float* const> parts, std::span<float* const> outs)
      : plan_(plan),
        parts_(parts),
        outs_(outs),
        sums_(parts.size()),
        now_(parts.size()),
        targets_(outs.size()),
        rounded_(plan.sum_type == DType::f32 ? 0 : kBlock),
        ends_in_result_(ends_in_result(plan)) {
    const std::size_t to_keep = plan.adds.size() - (ends_in_result_ ? 1 : 0);
    for (std::size_t i = 0; i < to_keep; ++i) sums_[to_size(plan.adds[i].into)].resize(kBlock);
  }

  void add_up(std::size_t at, std::size_t n, FetchAhead ahead) {
    for (std::size_t part = 0; part < parts_.size(); ++part) now_[part] = parts_[part] + at;
    for (std::size_t out = 0; out < outs_.size(); ++out) targets_[out] = outs_[out] + at;
    for (const SumPlan::Add& add : plan_.adds) {
      const float* into = now_[to_size(add.into)];
      const float* from = now_[to_size(add.from)];
      if (ends_in_result_ && &add == &plan_.adds.back()) {
        add_to_all(into, from, targets_, n, ahead);
        return;
      }
      float* sum = sums_[to_size(add.into)].data();
      add_to_all(into, from, std::span<float* const>(&sum, 1), n);
      now_[to_size(add.into)] = sum;
    }
    const float* result = now_[to_size(plan_.result)];
    if (!rounded_.empty()) {
      kernels::round_elements(result, plan_.sum_type, rounded_.data(), n);
      result = rounded_.data();
    }
    for (float* out : targets_) {
      if (out != result) std::memcpy(out, result, n * sizeof(float));
    }
  }

 private:
  const SumPlan& plan_;
  std::span<const float* const> parts_;
  std::span<float* const> outs_;
  std::vector<std::vector<float>> sums_;  // empty for parts that are never a sum on the way
  std::vector<const float*> now_;
  std::vector<float*> targets_;
  std::vector<float> rounded_;  // a block of the sum, if it is to be rounded
  bool ends_in_result_;
};

}  // namespace

void run_sum(const SumPlan& plan, std::span<const float* const> parts, std::span<float* const> outs,
             std::size_t begin, std::size_t end, Walk walk) {
  const bool asks = walk.lines == Lines::fetched_ahead;
  if (ends_in_result(plan) && plan.adds.size() == 1 && outs.size() <= kFewOuts) {
    const SumPlan::Add& add = plan.adds.front();
    const std::size_t n = end - begin;
    std::array<float*, kFewOuts> targets{};
    for (std::size_t out = 0; out < outs.size(); ++out) targets[out] = outs[out] + begin;
    add_to_all(parts[to_size(add.into)] + begin, parts[to_size(add.from)] + begin,
               std::span(targets).first(outs.size()), n,
               asks ? ahead_of(n, n, kAheadOfOneAdd, walk.direction) : FetchAhead{},
               walk.direction);
    return;
  }
  Block block(plan, parts, outs);
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t n = std::min(kBlock, end - at);
    block.add_up(at, n, asks ? ahead_of(n, end - at, kBlock, Direction::upward) : FetchAhead{});
  }
}

std::uint32_t fingerprint(const SumPlan& plan) {
  std::uint32_t hash = crc32c(std::as_bytes(std::span(plan.parts_of_rank)));
  hash = crc32c(std::as_bytes(std::span(plan.adds)), hash);
  hash = crc32c(std::as_bytes(std::span(&plan.result, 1)), hash);
  const std::array types = {plan.parts_type, plan.sum_type};
  return crc32c(std::as_bytes(std::span(types)), hash);
}

}  // namespace lockstep::shared_memory
