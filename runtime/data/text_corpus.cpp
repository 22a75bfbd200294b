// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/text_data.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kScheme = "text:";
constexpr std::uint64_t kHeldBackFrom = 0xf333333333333334;  // the last twentieth of 2^64

struct SourceFile {
  std::string name;  // relative to the source, or its last part for a single file
  fs::path path;
};

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw ConfigError("data.source: " + what, hint);
}

fs::path path_of(const std::string& source) {
  if (!source.starts_with(kScheme)) {
    refuse("\"" + source + "\" is no source that this build reads",
           "use text:PATH with a file or a folder");
  }
  fs::path path = source.substr(kScheme.size());
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) {
    refuse(path.string() + " does not exist", "check the path; every rank must see it");
  }
  return path;
}

void collect(const fs::path& folder, const std::string& prefix, std::vector<SourceFile>& files) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) refuse("cannot read the folder " + folder.string(), error.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    const bool link = entry.is_symlink(error);
    const fs::file_status target = entry.status(error);
    if (link && !fs::exists(target)) {
      refuse("link " + entry.path().string() + " points to nothing", "remove or mend the link");
    }
    if (fs::is_regular_file(target)) {
      files.push_back({prefix + name, entry.path()});
    } else if (fs::is_directory(target) && !link) {
      collect(entry.path(), prefix + name + "/", files);
    }
  }
}

std::vector<SourceFile> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) {
    if (!fs::is_regular_file(path)) {
      refuse(path.string() + " is neither a file nor a folder", "use a regular file or a folder");
    }
    return {{path.filename().string(), path}};
  }
  std::vector<SourceFile> files;
  collect(path, "", files);
  // Byte order, as unsigned bytes.
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  return files;
}

bool is_held_back(const std::string& name) {
  const Sha256Digest digest = sha256(name);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | digest[i];
  return first >= kHeldBackFrom;
}

std::vector<std::uint8_t> content_of(const SourceFile& file) {
  std::ifstream stream(file.path, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : -1;
  std::vector<std::uint8_t> bytes(size < 0 ? 0 : static_cast<std::size_t>(size));
  if (size >= 0) {
    stream.seekg(0);
    stream.read(reinterpret_cast<char*>(bytes.data()), size);
  }
  if (!stream) {
    refuse("cannot read " + file.path.string() + ": " + std::strerror(errno),
           "check its permissions; it must not change while a run reads it");
  }
  return bytes;
}

struct Reading {
  TokenStream train;
  TokenStream held_back;
  std::int64_t files = 0;
  std::int64_t held_back_files = 0;
};

// Reads a source; with `split` the held-back part goes apart.
Reading read_source(const std::string& source, bool split, Sha256& fingerprint) {
  const fs::path path = path_of(source);
  const bool folder = fs::is_directory(path);
  Reading reading;
  for (const SourceFile& file : files_of(path)) {
    const std::vector<std::uint8_t> bytes = content_of(file);
    fingerprint.update(file.name);
    fingerprint.update(std::string(1, '\0') + std::to_string(bytes.size()) + std::string(1, '\0'));
    fingerprint.update(std::as_bytes(std::span(bytes)));
    const bool held_back = split && folder && is_held_back(file.name);
    auto& stream = held_back ? reading.held_back : reading.train;
    stream.tokens.insert(stream.tokens.end(), bytes.begin(), bytes.end());
    ++reading.files;
    if (held_back) ++reading.held_back_files;
  }
  if (reading.train.tokens.empty() && reading.held_back.tokens.empty()) {
    refuse(path.string() + " holds no text", "give a file or folder with some bytes");
  }
  if (split && !folder) {
    auto& tokens = reading.train.tokens;
    const auto cut = tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() / 20);
    reading.held_back.tokens.assign(cut, tokens.end());
    tokens.erase(cut, tokens.end());
  }
  return reading;
}

}  // namespace

TextCorpus read_text_corpus(const std::string& source, const std::string& eval) {
  Sha256 fingerprint;
  fingerprint.update(std::string_view("text 1\n"));
  Reading reading = read_source(source, eval.empty(), fingerprint);
  if (!eval.empty()) {
    fingerprint.update(std::string_view("eval\n"));
    Reading other = read_source(eval, false, fingerprint);
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
