// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/corpus.h"

#include <utility>

#include "runtime/data/source.h"

namespace lockstep {
namespace {

SourceReading read_source(SourceRequest request, const std::string& source, Sha256& fingerprint) {
  if (source.starts_with(kTextScheme)) {
    request.path = source.substr(kTextScheme.size());
    if (request.key == "data.source") fingerprint.update(std::string_view("text 1\n"));
    return read_text_source(request, fingerprint);
  }
  if (source.starts_with(kBinScheme)) {
    request.path = source.substr(kBinScheme.size());
    fingerprint.update(std::string_view("bin 1\n"));
    return read_bin_source(request, fingerprint);
  }
  refuse_source(request, "\"" + source + "\" is no source that this build reads",
                "use text:PATH with a file or a folder, or bin:PATH with token shards");
}

}  // namespace

bool is_text_source(const std::string& source) noexcept { return source.starts_with(kTextScheme); }

Corpus read_corpus(const std::string& source, const std::string& eval, std::int64_t vocabulary) {
  Sha256 fingerprint;
  SourceReading reading = read_source(
      {.key = "data.source", .path = {}, .split = eval.empty(), .vocabulary = vocabulary}, source,
      fingerprint);
  if (!eval.empty()) {
    fingerprint.update(std::string_view("eval\n"));
    SourceReading other =
        read_source({.key = "data.eval", .path = {}, .split = false, .vocabulary = vocabulary},
                    eval, fingerprint);
    reading.held_back = std::move(other.train);
    reading.held_back_files = other.files;
  }
  return {.train = std::move(reading.train),
          .held_back = std::move(reading.held_back),
          .files = reading.files,
          .held_back_files = reading.held_back_files,
          .fingerprint = to_hex(fingerprint.finish())};
}

}  // namespace lockstep
