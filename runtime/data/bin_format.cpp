// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/bin_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie");

// The headers of llm.c: 256 int32, of which magic, version and count are used.
struct ShardKind {
  std::int32_t magic;
  std::int32_t version;
  std::uint64_t width;
  const char* name;
};
// Read as uint16 without header, each magic would be the token 55,432 or 55,713: not GPT-2's.
constexpr std::array<ShardKind, 2> kShardKinds = {{
    {20240520, 1, 2, "GPT-2 tokens"},
    {20240801, 7, 4, "Llama 3 tokens"},
}};

// What else llm.c calls .bin.
struct OtherKind {
  std::int32_t magic;
  const char* name;
};
constexpr std::array<OtherKind, 5> kOtherKinds = {{
    {20240326, "model weights"},
    {20240327, "a debug state"},
    {20240328, "a tokeniser"},
    {20240522, "multiple-choice questions"},
    {20240527, "a training state"},
}};

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

std::int32_t int_at(std::span<const std::byte> head, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, head.data() + index * sizeof value, sizeof value);
  return value;
}

std::string first_bytes(std::span<const std::byte> head) {
  std::string text;
  for (const std::byte byte : head.first(std::min<std::size_t>(head.size(), 8))) {
    std::array<char, 4> digits = {};
    std::snprintf(digits.data(), digits.size(), "%02x ", std::to_integer<unsigned>(byte));
    text += digits.data();
  }
  if (!text.empty()) text.pop_back();
  return text;
}

BinLayout parse_llmc(std::span<const std::byte> head, std::uint64_t size, const ShardKind& kind,
                     const std::string& name) {
  const std::string what = name + ": llm.c " + kind.name;
  if (size < kBinHeaderBytes || head.size() < kBinHeaderBytes) {
    throw DataError(what + ", truncated: " + std::to_string(size) + " bytes, of which " +
                        std::to_string(kBinHeaderBytes) + " would be the header",
                    "write or download the shard again");
  }
  if (const std::int32_t version = int_at(head, 1); version != kind.version) {
    throw ConfigError(what + " of version " + std::to_string(version) + "; this build reads " +
                          std::to_string(kind.version),
                      "write the shard in that version");
  }
  const std::int64_t tokens = int_at(head, 2);
  const std::uint64_t payload = size - kBinHeaderBytes;
  if (tokens == 0 && payload == 0) {
    throw ConfigError(what + ", but none: the shard is empty", "leave it out of the source");
  }
  if (tokens <= 0 || payload != static_cast<std::uint64_t>(tokens) * kind.width) {
    throw DataError(what + ": the header counts " + std::to_string(tokens) +
                        " tokens, but behind it are " + std::to_string(payload) + " bytes, not " +
                        std::to_string(tokens * static_cast<std::int64_t>(kind.width)),
                    "the shard is truncated or damaged: write or download it again");
  }
  return {.offset = kBinHeaderBytes, .width = kind.width, .tokens = tokens};
}

}  // namespace

BinLayout parse_bin_header(std::span<const std::byte> head, std::uint64_t size,
                           const std::string& name) {
  if (size == 0 || head.empty()) {
    throw ConfigError(name + " is empty", "leave it out of the source");
  }
  if (head.size() >= sizeof(std::int32_t)) {
    const std::int32_t magic = int_at(head, 0);
    for (const ShardKind& kind : kShardKinds) {
      if (kind.magic == magic) return parse_llmc(head, size, kind, name);
    }
    for (const OtherKind& kind : kOtherKinds) {
      if (kind.magic != magic) continue;
      throw ConfigError(
          name + " is a file of llm.c, but holds " + kind.name + " (magic " +
              std::to_string(magic) + "), no tokens",
          "give token shards: magic 20240520 or 20240801, or nanoGPT's uint16 without header");
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kNumpyMagic)) {
    throw ConfigError(name + " is a NumPy file (.npy), no token shard",
                      "write the tokens with ndarray.astype(\"<u2\").tofile(…)");
  }
  if (size % 2 != 0) {
    throw DataError(
        name + " is no token shard: " + std::to_string(size) +
            " bytes, which are not whole uint16 tokens of nanoGPT, and they begin with " +
            first_bytes(head) + ", which is no magic number of llm.c",
        "if it is one, it is truncated: write or download it again");
  }
  return {.offset = 0, .width = 2, .tokens = static_cast<std::int64_t>(size / 2)};
}

}  // namespace lockstep
