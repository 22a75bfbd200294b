// SPDX-License-Identifier: Apache-2.0
#include <glob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/data/bin_format.h"
#include "runtime/data/shard_files.h"
#include "runtime/data/source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kScanBytes = std::size_t{4} << 20;

// One shard: tokens are read where they are asked for, and each is compared with the vocabulary.
class BinShard final : public TokenSource {
 public:
  BinShard(std::shared_ptr<ShardFiles> files, fs::path path, std::int64_t vocabulary)
      : files_(std::move(files)),
        path_(std::move(path)),
        vocabulary_(vocabulary),
        identity_(files_->identify(path_)) {
    std::array<std::byte, kBinHeaderBytes> head = {};
    const std::span<std::byte> seen =
        std::span(head).first(std::min<std::size_t>(head.size(), identity_.size));
    files_->read(path_, identity_, 0, seen);
    layout_ = parse_bin_header(seen, identity_.size, path_.string());
  }

  std::int64_t size() const noexcept override { return layout_.tokens; }
  std::uint64_t width() const noexcept { return layout_.width; }

  void read(std::int64_t first, std::span<std::int32_t> into) const override {
    std::vector<std::byte> raw(into.size() * layout_.width);
    read_raw(first, raw);
    if (layout_.width == 2) {
      convert<std::uint16_t>(first, raw, into);
    } else {
      convert<std::uint32_t>(first, raw, into);
    }
  }

  // Reads all of it once: the checksums of its pieces go into `fingerprint`, and a token that is
  // outside the vocabulary is found before the first step.
  void scan(Sha256& fingerprint) const {
    const auto piece = static_cast<std::int64_t>(kScanBytes / layout_.width);
    std::vector<std::byte> raw;
    for (std::int64_t first = 0; first < layout_.tokens; first += piece) {
      const std::int64_t count = std::min(piece, layout_.tokens - first);
      raw.resize(static_cast<std::size_t>(count) * layout_.width);
      read_raw(first, raw);
      if (layout_.width == 2) {
        check<std::uint16_t>(first, raw);
      } else {
        check<std::uint32_t>(first, raw);
      }
      const std::uint32_t crc = crc32c(raw);
      fingerprint.update(std::as_bytes(std::span(&crc, 1)));
    }
  }

 private:
  void read_raw(std::int64_t first, std::span<std::byte> into) const {
    files_->read(path_, identity_,
                 layout_.offset + static_cast<std::uint64_t>(first) * layout_.width, into);
  }

  template <typename T>
  static T token_at(std::span<const std::byte> raw, std::size_t i) {
    T token = 0;
    std::memcpy(&token, raw.data() + i * sizeof token, sizeof token);
    return token;
  }

  // Over `raw`, the tokens from `first` on.
  template <typename T>
  void check(std::int64_t first, std::span<const std::byte> raw) const {
    const std::size_t count = raw.size() / sizeof(T);
    T largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, token_at<T>(raw, i));
    if (static_cast<std::int64_t>(largest) < vocabulary_) return;
    for (std::size_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::int64_t>(token_at<T>(raw, i));
      if (token >= vocabulary_) refuse(token, first + static_cast<std::int64_t>(i));
    }
  }

  template <typename T>
  void convert(std::int64_t first, std::span<const std::byte> raw,
               std::span<std::int32_t> into) const {
    check<T>(first, raw);
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<std::int32_t>(token_at<T>(raw, i));
    }
  }

  [[noreturn]] void refuse(std::int64_t token, std::int64_t at) const {
    throw DataError(
        path_.string() + ": token " + std::to_string(token) + " at position " + std::to_string(at) +
            " (from 0; byte " +
            std::to_string(layout_.offset + static_cast<std::uint64_t>(at) * layout_.width) +
            ") is outside the vocabulary of " + std::to_string(vocabulary_),
        "set model.vocab to that of the tokeniser that wrote the shard (GPT-2: 50257), "
        "or write the shard again");
  }

  std::shared_ptr<ShardFiles> files_;
  fs::path path_;
  std::int64_t vocabulary_;
  FileIdentity identity_;
  BinLayout layout_;
};

// The folder part of a pattern that holds no wildcard: names are relative to it.
std::size_t fixed_prefix(const std::string& pattern) {
  const std::size_t slash = pattern.rfind('/', pattern.find_first_of("*?["));
  return slash == std::string::npos ? 0 : slash + 1;
}

std::vector<SourceFile> files_of_pattern(const SourceRequest& request) {
  glob_t found = {};
  const int status = ::glob(request.path.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH) {
    refuse_source(request, "cannot read the folders of " + request.path, "check their permissions");
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  std::error_code error;
  for (const std::string& path : paths) {
    if (!fs::is_regular_file(path, error)) continue;
    files.push_back({path.substr(fixed_prefix(request.path)), path});
  }
  return files;
}

std::vector<SourceFile> files_of(const SourceRequest& request) {
  const fs::path path(request.path);
  std::error_code error;
  std::vector<SourceFile> files;
  if (!path.empty() && fs::is_directory(path, error)) {
    files = files_of_folder(request, ".bin");
    if (files.empty()) {
      refuse_source(request, request.path + " holds no token shards",
                    "shards of a folder are files whose names end with .bin");
    }
    return files;
  }
  if (!path.empty() && fs::exists(path, error)) {
    if (!fs::is_regular_file(path, error)) {
      refuse_source(request, request.path + " is neither a file nor a folder",
                    "use a regular file or a folder");
    }
    return {{path.filename().string(), path}};
  }
  const bool pattern = request.path.find_first_of("*?[") != std::string::npos;
  if (pattern) files = files_of_pattern(request);
  if (files.empty()) {
    refuse_source(request, request.path + (pattern ? " matches no file" : " does not exist"),
                  "check the path; every rank must see it");
  }
  return files;
}

}  // namespace

SourceReading read_bin_source(const SourceRequest& request, Sha256& fingerprint) {
  const auto pool = std::make_shared<ShardFiles>();
  SourceReading reading;
  std::shared_ptr<BinShard> first;
  std::string first_path;
  for (const SourceFile& file : files_of(request)) {
    const auto shard = std::make_shared<BinShard>(pool, file.path, request.vocabulary);
    if (!first) {
      first = shard;
      first_path = file.path.string();
    }
    if (shard->width() != first->width()) {
      refuse_source(request,
                    first_path + " has tokens of " + std::to_string(first->width()) +
                        " bytes and " + file.path.string() + " of " +
                        std::to_string(shard->width()),
                    "shards of one source come from one tokeniser");
    }
    fingerprint.update(file.name);
    fingerprint.update(std::string(1, '\0') + std::to_string(shard->size()) + " " +
                       std::to_string(shard->width()) + std::string(1, '\0'));
    shard->scan(fingerprint);
    reading.train.append(shard, 0, shard->size());
    ++reading.files;
  }
  if (request.split) hold_back_tail(reading);
  return reading;
}

}  // namespace lockstep
