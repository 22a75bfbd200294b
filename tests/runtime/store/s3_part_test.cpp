// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep::s3 {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Read in bites of `bite` bytes.
std::string text_of(const Body& body, std::size_t bite) {
  BodyReader reader(body);
  std::string text;
  std::string into(bite, '?');
  while (const std::size_t count = reader.read(std::as_writable_bytes(std::span(into)))) {
    text.append(into, 0, count);
  }
  return text;
}

TEST(S3Part, IsZeroWhereNothingIsWritten) {
  Part part(12);
  part.write(2, bytes_of("ab"));
  part.write(6, bytes_of("cd"));
  const Body body = part.body();
  EXPECT_EQ(body.size(), 12U);
  for (const std::size_t bite : {1U, 3U, 5U, 100U}) {
    EXPECT_EQ(text_of(body, bite), std::string("\0\0ab\0\0cd\0\0\0\0", 12));
  }
}

TEST(S3Part, TakesThePieceAtItsBeginLast) {
  Part part(8);
  part.write(4, bytes_of("data"));
  part.write(0, bytes_of("hd"));
  EXPECT_EQ(text_of(part.body(), 100), std::string("hd\0\0data", 8));
}

TEST(S3Part, OfNothingIsManyZeros) {
  const std::string text = text_of(Part(5'000'007).body(), 4096);
  EXPECT_EQ(text.size(), 5'000'007U);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c == 0; }));
  EXPECT_TRUE(Part().empty());
}

TEST(S3Part, JoinsPiecesThatFollowEachOtherInMemory) {
  const std::string text = "abcdef";
  Part part(6);
  for (std::size_t i = 0; i < text.size(); i += 2) part.write(i, bytes_of(text).subspan(i, 2));
  EXPECT_EQ(part.body().pieces().size(), 1U);
}

TEST(S3Part, IsReadAgainFromAnyByte) {
  Part part(9);
  part.write(1, bytes_of("abc"));
  part.write(6, bytes_of("def"));
  const Body body = part.body();
  const std::string whole = text_of(body, 100);
  for (std::size_t from = 0; from <= whole.size(); ++from) {
    BodyReader reader(body);
    std::string into(100, '?');
    reader.read(std::as_writable_bytes(std::span(into)));
    reader.seek(from);
    EXPECT_EQ(reader.read(std::as_writable_bytes(std::span(into))), whole.size() - from);
    EXPECT_EQ(into.substr(0, whole.size() - from), whole.substr(from));
  }
}

}  // namespace
}  // namespace lockstep::s3
