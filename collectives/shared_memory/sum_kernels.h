// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::shared_memory {

/// What is asked for of every output while others are added: for each i < `count` the line of
/// element i + `distance`.
struct FetchAhead {
  std::size_t distance = 0;
  std::size_t count = 0;
};

/// outs[j][i] = a[i] + b[i] for every j and i < count. An output may be an input itself.
void add_to_all(const float* a, const float* b, std::span<float* const> outs, std::size_t count,
                FetchAhead ahead = {});

}  // namespace lockstep::shared_memory
