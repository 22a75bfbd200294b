// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

TEST(Philox, GivesTheKnownAnswers) {
  // Random123's known-answer file, philox4x32 10 rounds.
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(FillNormal, DependsOnTheGlobalIndexAloneNotOnThePiece) {
  std::vector<float> whole(1000);
  fill_normal(whole, 0, 7, "w", 0.02);
  std::vector<float> part(10);
  fill_normal(part, 500, 7, "w", 0.02);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[500 + i]);
}

TEST(FillNormal, DiffersByNameAndSeedIncludingItsHighHalf) {
  std::vector<float> a(4);
  std::vector<float> b(4);
  fill_normal(a, 0, 7, "w", 1.0);
  fill_normal(b, 0, 7, "x", 1.0);
  EXPECT_NE(a, b);
  fill_normal(b, 0, 7 + (std::uint64_t{1} << 32), "w", 1.0);
  EXPECT_NE(a, b);
}

TEST(FillNormal, HasTheAskedSpread) {
  std::vector<float> x(200000);
  fill_normal(x, 0, 1, "w", 0.02);
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : x) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double n = static_cast<double>(x.size());
  EXPECT_NEAR(sum / n, 0.0, 2e-4);
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 2e-4);
}

TEST(Hash, GivesThePublishedDigests) {
  EXPECT_EQ(to_hex(sha256(std::string_view("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(std::string_view())),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283U);
}

TEST(Hash, GoesOnFromTheBytesBefore) {
  const std::string_view text = "the quick brown fox";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32c(bytes.subspan(7), crc32c(bytes.first(7))), crc32c(bytes));
  Sha256 hash;
  hash.update(bytes.first(7));
  hash.update(bytes.subspan(7));
  EXPECT_EQ(hash.finish(), sha256(text));
}

TEST(Hash, DrawsDifferentNonces) {
  EXPECT_EQ(random_hex(16).size(), 32U);
  EXPECT_NE(random_hex(16), random_hex(16));
}

}  // namespace
}  // namespace lockstep
