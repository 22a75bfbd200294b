// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A row of tokens. Bytes for now: the byte tokeniser is the identity.
struct TokenStream {
  std::vector<std::uint8_t> tokens;
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
};

/// A text source, read whole: what trains, what is held back for evaluation, and what it is.
struct TextCorpus {
  TokenStream train;
  TokenStream held_back;   // empty: no evaluation
  std::int64_t files = 0;  // of the training source
  std::int64_t held_back_files = 0;
  std::string fingerprint;  // 64 hex digits: changes with any name, order or byte
};

/// Tokens of the byte tokeniser.
inline constexpr std::int64_t kByteVocabulary = 256;

/// Reads `text:PATH`, a file or a folder; raw bytes, joined without separator.
///
/// Folders: every file below, in byte order of its whole relative path; names that begin with '.',
/// pipes, sockets and devices are left out; a link to a file counts under its own name, a link to a
/// folder is not entered. Held back: in a folder the files whose first 8 bytes of SHA-256(relative
/// path), big-endian, are ≥ 0xf333333333333334; in one file its last ⌊N/20⌋ bytes; with `eval`
/// (another such source) all of it, and all of `source` trains.
///
/// Throws ConfigError for an unknown scheme, a path that is missing, empty or unreadable, or a link
/// to nothing.
TextCorpus read_text_corpus(const std::string& source, const std::string& eval = {});

}  // namespace lockstep
