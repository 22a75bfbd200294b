// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::shared_memory {

/// outs[j][i] = a[i] + b[i] for every j and i < count. An output may be an input itself.
void add_to_all(const float* a, const float* b, std::span<float* const> outs, std::size_t count);

}  // namespace lockstep::shared_memory
