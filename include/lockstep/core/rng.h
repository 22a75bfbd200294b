// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
///
/// A pure function of key and counter, so that a number depends on what it is for and never on
/// which rank draws it.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept;

/// Fills `out` with N(0, std²) by the rule of the initial weights: element i of parameter `name` is
/// drawn from key (seed low, first 4 bytes of SHA-256(name)), counter (i low, i high, seed high,
/// 0). `first` is the global index of out[0].
void fill_normal(std::span<float> out, std::uint64_t first, std::uint64_t seed,
                 std::string_view name, double std);

}  // namespace lockstep
