// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "runtime/data/source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHeldBackFrom = 0xf333333333333334;  // the last twentieth of 2^64

std::vector<SourceFile> files_of(const SourceRequest& request) {
  const fs::path path(request.path);
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) {
    refuse_source(request, path.string() + " does not exist",
                  "check the path; every rank must see it");
  }
  if (fs::is_directory(path)) return files_of_folder(request, "");
  if (!fs::is_regular_file(path)) {
    refuse_source(request, path.string() + " is neither a file nor a folder",
                  "use a regular file or a folder");
  }
  return {{path.filename().string(), path}};
}

bool is_held_back(const std::string& name) {
  const Sha256Digest digest = sha256(name);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | digest[i];
  return first >= kHeldBackFrom;
}

std::vector<std::uint8_t> content_of(const SourceRequest& request, const SourceFile& file) {
  std::ifstream stream(file.path, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : -1;
  std::vector<std::uint8_t> bytes(size < 0 ? 0 : static_cast<std::size_t>(size));
  if (size >= 0) {
    stream.seekg(0);
    stream.read(reinterpret_cast<char*>(bytes.data()), size);
  }
  if (!stream) {
    refuse_source(request, "cannot read " + file.path.string() + ": " + std::strerror(errno),
                  "check its permissions; it must not change while a run reads it");
  }
  return bytes;
}

}  // namespace

SourceReading read_text_source(const SourceRequest& request, Sha256& fingerprint) {
  const std::vector<SourceFile> files = files_of(request);
  const bool folder = fs::is_directory(request.path);
  SourceReading reading;
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> held_back;
  for (const SourceFile& file : files) {
    const std::vector<std::uint8_t> bytes = content_of(request, file);
    fingerprint.update(file.name);
    fingerprint.update(std::string(1, '\0') + std::to_string(bytes.size()) + std::string(1, '\0'));
    fingerprint.update(std::as_bytes(std::span(bytes)));
    const bool apart = request.split && folder && is_held_back(file.name);
    auto& target = apart ? held_back : train;
    target.insert(target.end(), bytes.begin(), bytes.end());
    ++reading.files;
    if (apart) ++reading.held_back_files;
  }
  if (train.empty() && held_back.empty()) {
    refuse_source(request, request.path + " holds no text",
                  "give a file or folder with some bytes");
  }
  reading.train = TokenStream(std::move(train));
  reading.held_back = TokenStream(std::move(held_back));
  if (request.split && !folder) hold_back_tail(reading);
  return reading;
}

}  // namespace lockstep
