// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/hash.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex_of(std::string_view text) {
  return to_hex(md5(std::vector<Pieces>{{bytes_of(text)}}).front());
}

std::string letters(std::size_t count) {
  std::string text(count, ' ');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + (i * i + i / 7) % 26);
  return text;
}

using testing_support::instruction_set_name;

class Md5 : public testing_support::KernelTest {};
LOCKSTEP_ON_EVERY_INSTRUCTION_SET(Md5);

// RFC 1321, A.5.
TEST_P(Md5, OfTheStandardsMessages) {
  EXPECT_EQ(hex_of(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(hex_of("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(hex_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  EXPECT_EQ(hex_of("1234567890123456789012345678901234567890123456789012345678901234567890123456789"
                   "0"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST_P(Md5, IsTheSameInAnyCompanyAndInAnyPieces) {
  std::vector<std::string> texts;
  for (const std::size_t size : {0,   1,   55,  56,   63, 64,     65, 119,  120, 127,
                                 128, 512, 513, 5000, 64, 70'000, 3,  1024, 447, 4096}) {
    texts.push_back(letters(size));
  }
  std::vector<Pieces> messages;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto bytes = bytes_of(texts[i]);
    const std::size_t cut = bytes.size() * i / texts.size();
    messages.push_back({bytes.first(cut), {}, bytes.subspan(cut)});
  }
  const std::vector<Md5Digest> together = md5(messages);
  ASSERT_EQ(together.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(to_hex(together[i]), hex_of(texts[i])) << texts[i].size() << " bytes";
  }
  // Of Python's hashlib.
  EXPECT_EQ(to_hex(together[8]), "10fca954526ac8cde6671256526621b6");
  EXPECT_EQ(to_hex(together[13]), "c1a83bac978e02e99b587a4557698997");
  EXPECT_EQ(to_hex(together[15]), "27c2fe78d9aa0b4301421ec79f493664");
}

TEST_P(Md5, OfOneByteAtATime) {
  const std::string text = letters(200);
  Pieces pieces;
  for (std::size_t i = 0; i < text.size(); ++i) pieces.push_back(bytes_of(text).subspan(i, 1));
  EXPECT_EQ(to_hex(md5(std::vector<Pieces>{pieces}).front()), hex_of(text));
}

}  // namespace
}  // namespace lockstep
