// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lockstep::s3 {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(PartBuffer& part) {
  const auto bytes = part.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(S3PartBuffer, IsZeroWhereNothingIsWritten) {
  PartBuffer part(12);
  part.write(2, bytes_of("ab"));
  part.write(6, bytes_of("cd"));
  EXPECT_EQ(text_of(part), std::string("\0\0ab\0\0cd\0\0\0\0", 12));
}

TEST(S3PartBuffer, TakesThePieceAtItsBeginLast) {
  PartBuffer part(8);
  part.write(4, bytes_of("data"));
  part.write(0, bytes_of("hd"));
  EXPECT_EQ(text_of(part), std::string("hd\0\0data", 8));
}

TEST(S3PartBuffer, OfManyPagesIsZeroAtItsEnd) {
  // Freed memory that was used before comes back.
  for (int round = 0; round < 3; ++round) {
    PartBuffer part((5U << 20U) + 7);
    const std::string text = text_of(part);
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c == 0; }));
    PartBuffer used(5U << 20U);
    used.write(0, bytes_of(std::string(5U << 20U, 'x')));
  }
  EXPECT_TRUE(PartBuffer().empty());
}

}  // namespace
}  // namespace lockstep::s3
