// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <span>
#include <string>

namespace lockstep {

/// What tells a file from a later one under the same name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_s = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// Files open for reading, the most recent ones only: a data set may have more shards than a
/// process may have open files. Reads are pread, not a mapping, so that a file that shrinks under a
/// run is an error and no SIGBUS. One thread at a time.
class ShardFiles {
 public:
  explicit ShardFiles(std::size_t limit = 64) : limit_(limit) {}
  ~ShardFiles();
  ShardFiles(const ShardFiles&) = delete;
  ShardFiles& operator=(const ShardFiles&) = delete;

  /// Opens the file. Throws ConfigError if that cannot be done.
  FileIdentity identify(const std::filesystem::path& path);

  /// Fills `into` from byte `offset` on. Throws ConfigError if the file is not `expected` any more,
  /// StorageError if the read fails.
  void read(const std::filesystem::path& path, const FileIdentity& expected, std::uint64_t offset,
            std::span<std::byte> into);

 private:
  struct OpenFile {
    std::filesystem::path path;
    int descriptor = -1;
    FileIdentity identity;
  };
  OpenFile& open(const std::filesystem::path& path);

  std::size_t limit_;
  std::list<OpenFile> files_;  // the most recently used first
};

}  // namespace lockstep
