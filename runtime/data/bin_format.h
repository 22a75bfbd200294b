// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Bytes of a shard that parse_bin_header wants to see.
inline constexpr std::size_t kBinHeaderBytes = 1024;

/// Where the tokens of a shard lie.
struct BinLayout {
  std::uint64_t offset = 0;  // bytes before the first token
  std::uint64_t width = 2;   // bytes a token, unsigned and little-endian: 2 or 4
  std::int64_t tokens = 0;   // at least 1
};

/// What a file of `size` bytes that begins with `head` (kBinHeaderBytes of it, or all) is: a shard
/// of llm.c by its magic number, else one of nanoGPT. A pure function.
///
/// Throws ConfigError for an empty file, another kind of file or another version; DataError for a
/// truncated file or a header that disagrees with the size. `name` is for messages.
BinLayout parse_bin_header(std::span<const std::byte> head, std::uint64_t size,
                           const std::string& name);

}  // namespace lockstep
