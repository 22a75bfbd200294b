// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/hash.h"
#include "lockstep/runtime/corpus.h"

namespace lockstep {

inline constexpr std::string_view kTextScheme = "text:";
inline constexpr std::string_view kBinScheme = "bin:";

/// What data.source or data.eval asks for.
struct SourceRequest {
  std::string key;                // "data.source" or "data.eval", for messages
  std::string path;               // behind the scheme
  bool split = false;             // whether the held-back part goes apart
  std::int64_t vocabulary = 256;  // tokens are below
};

struct SourceReading {
  TokenStream train;
  TokenStream held_back;  // with `split`
  std::int64_t files = 0;
  std::int64_t held_back_files = 0;
};

/// Names, order and bytes go into `fingerprint`. Errors as read_corpus.
SourceReading read_text_source(const SourceRequest& request, Sha256& fingerprint);
SourceReading read_bin_source(const SourceRequest& request, Sha256& fingerprint);

/// Cuts the last ⌊N/20⌋ tokens of `train` off, as the held-back part.
void hold_back_tail(SourceReading& reading);

struct SourceFile {
  std::string name;  // relative to the source, or its last part for a single file
  std::filesystem::path path;
};

/// ConfigError about the source.
[[noreturn]] void refuse_source(const SourceRequest& request, const std::string& what,
                                const std::string& hint);

/// Every file of a folder whose name ends with `suffix`, in byte order of the relative path, by the
/// rules of read_corpus.
std::vector<SourceFile> files_of_folder(const SourceRequest& request, std::string_view suffix);

}  // namespace lockstep
