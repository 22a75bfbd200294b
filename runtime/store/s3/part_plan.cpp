// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part_plan.h"

#include <algorithm>

namespace lockstep::s3 {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

PartPlan plan_parts(std::uint64_t size, const PartLimits& limits) {
  const std::uint64_t needed = ceil_div(ceil_div(size, limits.most_parts), kMebibyte) * kMebibyte;
  PartPlan plan;
  plan.part_bytes = std::max(limits.least_bytes, needed);
  plan.parts = std::max<std::uint64_t>(1, ceil_div(size, plan.part_bytes));
  plan.last_bytes = size - (plan.parts - 1) * plan.part_bytes;
  return plan;
}

}  // namespace lockstep::s3
