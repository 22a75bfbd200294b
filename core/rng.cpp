// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/rng.h"

#include <cmath>
#include <numbers>

#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept {
  constexpr std::uint64_t multiplier0 = 0xD2511F53;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t weyl1 = 0xBB67AE85;  // √3 − 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += weyl0;
    key[1] += weyl1;
  }
  return counter;
}

void fill_normal(std::span<float> out, std::uint64_t first, std::uint64_t seed,
                 std::string_view name, double std) {
  const Sha256Digest digest = sha256(name);
  const std::uint32_t name_key =
      static_cast<std::uint32_t>(digest[0]) | static_cast<std::uint32_t>(digest[1]) << 8 |
      static_cast<std::uint32_t>(digest[2]) << 16 | static_cast<std::uint32_t>(digest[3]) << 24;
  constexpr double scale = 1.0 / 4294967296.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = first + i;
    const auto x = philox4x32({low(index), high(index), high(seed), 0}, {low(seed), name_key});
    // Box & Muller 1958, in fp64; the first number is never 0.
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(x[0]) + 1.0) * scale));
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(x[1]) * scale);
    out[i] = static_cast<float>(radius * std::cos(angle) * std);
  }
}

}  // namespace lockstep
