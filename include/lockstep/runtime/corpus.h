// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/runtime/token_stream.h"

namespace lockstep {

/// A data source: what trains, what is held back for evaluation, and what it is.
struct Corpus {
  TokenStream train;
  TokenStream held_back;   // empty: no evaluation
  std::int64_t files = 0;  // of the training source
  std::int64_t held_back_files = 0;
  std::string fingerprint;  // 64 hex digits: changes with any name, order or byte
};

/// Tokens of the byte tokeniser.
inline constexpr std::int64_t kByteVocabulary = 256;

/// Whether `source` is text, which the byte tokeniser turns into tokens.
bool is_text_source(const std::string& source) noexcept;

/// Opens `source`, and `eval` if given, and reads every byte once.
///
/// `text:PATH`, a file or a folder: raw bytes, joined without separator and kept in memory. In a
/// folder every file below, in byte order of its whole relative path; names that begin with '.',
/// pipes, sockets and devices are left out; a link to a file counts under its own name, a link to a
/// folder is not entered.
///
/// `bin:PATH`, a file, a folder (all `*.bin` below, by the same rules) or a pattern of glob(7):
/// token shards, joined in byte order of their relative paths and read from disk piece by piece.
/// A shard is one of llm.c (magic 20240520, version 1, 256 int32 of header, then uint16; or magic
/// 20240801, version 7, then uint32) or of nanoGPT (uint16 without header); little-endian.
///
/// Held back: of a text folder the files whose first 8 bytes of SHA-256(relative path), big-endian,
/// are ≥ 0xf333333333333334; of one text file or of token shards the last ⌊N/20⌋ tokens; with
/// `eval` (another source) all of it, and all of `source` trains.
///
/// ConfigError: an unknown scheme, a path that is missing, empty or unreadable, a link to nothing,
/// a file of another kind or version. DataError: a shard that is truncated, whose header disagrees
/// with its size, or with a token not in [0, vocabulary), named with file and position.
Corpus read_corpus(const std::string& source, const std::string& eval = {},
                   std::int64_t vocabulary = kByteVocabulary);

}  // namespace lockstep
