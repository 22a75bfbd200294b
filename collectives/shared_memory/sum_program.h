// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/shared_memory/sum_kernels.h"
#include "lockstep/collectives/sum_plan.h"

namespace lockstep::shared_memory {

/// Whether run_sum asks for the lines of an output before it comes to them. That pays where they
/// lie in the other core's cache: not where memory is the limit, and not for a few lines, which it
/// would take from who still works on them.
enum class Lines : std::uint8_t { as_they_come, fetched_ahead };

/// How run_sum goes through memory. A core fetches lines beyond those that it comes to, and so
/// takes them from another one that works there: of two ranks whose slices touch, the one that has
/// the lower slice walks downward, the other one upward. That is for single additions, which a
/// tenth of a µs matters to.
struct Walk {
  Lines lines = Lines::as_they_come;
  Direction direction = Direction::upward;
};

/// Carries out `plan` on elements [begin, end) of every part and stores the sum to the same
/// elements of every output. An output may be one of the parts; other parts keep their contents.
///
/// Works block by block, so that intermediate sums stay in the first-level cache and each element
/// of a part is read once from memory.
void run_sum(const SumPlan& plan, std::span<const float* const> parts, std::span<float* const> outs,
             std::size_t begin, std::size_t end, Walk walk = {});

/// Equal plans have equal numbers; different ones, as good as never.
std::uint32_t fingerprint(const SumPlan& plan);

}  // namespace lockstep::shared_memory
