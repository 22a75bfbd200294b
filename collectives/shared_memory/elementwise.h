// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "lockstep/collectives/communicator.h"

namespace lockstep::shared_memory {

/// into[i] = op(into[i], from[i]) for i < count; f32, f64 or i64. A NaN stays a NaN; integer sums
/// wrap around. The arrays are apart.
void combine(std::byte* into, const std::byte* from, std::size_t count, DType dtype, ReduceOp op);

}  // namespace lockstep::shared_memory
