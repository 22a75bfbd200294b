// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/sum_program.h"

#include <algorithm>
#include <cstring>

#include "collectives/shared_memory/sum_kernels.h"
#include "lockstep/core/hash.h"

namespace lockstep::shared_memory {
namespace {

// Floats in a block of intermediate sums. Few enough that the sums of a tree fit into 32 KiB.
constexpr std::size_t kBlock = 1024;

std::size_t to_size(int index) { return static_cast<std::size_t>(index); }

std::vector<float*> shifted(std::span<float* const> arrays, std::size_t by) {
  std::vector<float*> result(arrays.begin(), arrays.end());
  for (float*& array : result) array += by;
  return result;
}

bool ends_in_result(const SumPlan& plan) {
  return !plan.adds.empty() && plan.adds.back().into == plan.result;
}

}  // namespace

void run_sum(const SumPlan& plan, std::span<const float* const> parts, std::span<float* const> outs,
             std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  if (plan.adds.size() == 1 && ends_in_result(plan)) {  // nothing in between to keep
    const SumPlan::Add add = plan.adds.front();
    add_to_all(parts[to_size(add.into)] + begin, parts[to_size(add.from)] + begin,
               shifted(outs, begin), end - begin);
    return;
  }
  std::vector<std::vector<float>> sums(parts.size());
  for (const SumPlan::Add& add : plan.adds) sums[to_size(add.into)].resize(kBlock);
  std::vector<const float*> now(parts.size());  // where each part's value is, in this block
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t n = std::min(kBlock, end - at);
    const std::vector<float*> targets = shifted(outs, at);
    for (std::size_t part = 0; part < parts.size(); ++part) now[part] = parts[part] + at;
    for (const SumPlan::Add& add : plan.adds) {
      const bool last = &add == &plan.adds.back() && ends_in_result(plan);
      float* sum = sums[to_size(add.into)].data();
      const std::span<float* const> into =
          last ? std::span<float* const>(targets) : std::span<float* const>(&sum, 1);
      add_to_all(now[to_size(add.into)], now[to_size(add.from)], into, n);
      now[to_size(add.into)] = sum;
    }
    if (ends_in_result(plan)) continue;
    const float* result = now[to_size(plan.result)];
    for (float* out : targets) {
      if (out != result) std::memcpy(out, result, n * sizeof(float));
    }
  }
}

std::uint32_t fingerprint(const SumPlan& plan) {
  std::uint32_t hash = crc32c(std::as_bytes(std::span(plan.parts_of_rank)));
  hash = crc32c(std::as_bytes(std::span(plan.adds)), hash);
  return crc32c(std::as_bytes(std::span(&plan.result, 1)), hash);
}

}  // namespace lockstep::shared_memory
