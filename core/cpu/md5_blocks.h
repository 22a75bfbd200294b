// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

constexpr std::size_t kMd5MostLanes = 16;

/// The messages that a vector of this machine has room for: 4, 8 or 16.
std::size_t md5_lanes();

/// Takes `blocks` blocks of 64 bytes of each of `lanes` messages into their states [4][lanes].
/// `chunks` holds 16 bytes of a message at [block][quarter][message mod 4][message div 4]. Both
/// begin at multiples of 64 bytes.
void md5_blocks(std::uint32_t* state, const std::uint32_t* chunks, std::size_t blocks);

}  // namespace lockstep::kernels
