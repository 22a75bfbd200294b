// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/shard_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse_changed(const std::filesystem::path& path) {
  throw ConfigError(path.string() + " has changed since the run began",
                    "shards must not change while a run reads them; put the file back");
}

}  // namespace

ShardFiles::~ShardFiles() {
  for (const OpenFile& file : files_) ::close(file.descriptor);
}

ShardFiles::OpenFile& ShardFiles::open(const std::filesystem::path& path) {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&](const OpenFile& file) { return file.path == path; });
  if (found != files_.end()) {
    files_.splice(files_.begin(), files_, found);
    return files_.front();
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw ConfigError("cannot open " + path.string() + ": " + reason(errno),
                      "check the path and its permissions; every rank must see it");
  }
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    ::close(descriptor);
    throw ConfigError("cannot stat " + path.string() + ": " + reason(error), "check the path");
  }
  if (files_.size() >= limit_) {
    ::close(files_.back().descriptor);
    files_.pop_back();
  }
  files_.push_front({.path = path,
                     .descriptor = descriptor,
                     .identity = {.device = status.st_dev,
                                  .inode = status.st_ino,
                                  .size = static_cast<std::uint64_t>(status.st_size),
                                  .modified_s = status.st_mtim.tv_sec,
                                  .modified_ns = status.st_mtim.tv_nsec}});
  return files_.front();
}

FileIdentity ShardFiles::identify(const std::filesystem::path& path) { return open(path).identity; }

void ShardFiles::read(const std::filesystem::path& path, const FileIdentity& expected,
                      std::uint64_t offset, std::span<std::byte> into) {
  const OpenFile& file = open(path);
  if (file.identity != expected) refuse_changed(path);
  while (!into.empty()) {
    const ssize_t got =
        ::pread(file.descriptor, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw StorageError(
          "read " + path.string() + " at byte " + std::to_string(offset) + ": " + reason(errno),
          "check the disk or mount that holds the data");
    }
    if (got == 0) refuse_changed(path);
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace lockstep
