// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::shared_memory {

/// The order in which elements are added; the sums are the same.
enum class Direction : std::uint8_t { upward, downward };

/// What is asked for of every output while others are added: for each element i of [first, last)
/// the line of element i + `offset`.
struct FetchAhead {
  std::ptrdiff_t offset = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

/// outs[j][i] = a[i] + b[i] for every j and i < count. An output may be an input itself.
void add_to_all(const float* a, const float* b, std::span<float* const> outs, std::size_t count,
                FetchAhead ahead = {}, Direction direction = Direction::upward);

}  // namespace lockstep::shared_memory
