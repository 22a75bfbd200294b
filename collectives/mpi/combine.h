// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// out [count] = a fixed combination of the parts [count], element by element; `out` may be one of
/// the parts, which otherwise stay as they are.
using Combine =
    std::function<void(std::span<const std::byte* const> parts, std::byte* out, std::size_t count)>;

/// The f32 additions of `plan`, which must outlive the result.
Combine combine_by_plan(const SumPlan& plan);

/// ((p0 op p1) op p2) …, in rank order; f32, f64 or i64.
Combine combine_in_order(DType dtype, ReduceOp op);

}  // namespace lockstep
