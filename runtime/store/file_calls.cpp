// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Advice {
  const char* hint;
  Outcome outcome;
};

Advice advice_for(int error) {
  switch (error) {
    case ENOSPC:
      return {"the file system is full: free space, lower checkpoint.keep or set store",
              Outcome::failed_elsewhere};
    case EDQUOT:
      return {"the disk quota is used up: free space, lower checkpoint.keep or set store",
              Outcome::failed_elsewhere};
    case EFBIG:
      return {"a file of this size is not allowed here: see ulimit -f, or set store",
              Outcome::failed_elsewhere};
    case EACCES:
    case EPERM:
      return {"this user may not do that here: change the permissions or set store",
              Outcome::config};
    case EROFS:
      return {"the file system is read-only: remount it or set store", Outcome::config};
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return {"the path does not name a folder for checkpoints: check store", Outcome::config};
    case EIO:
      return {"the disk or the file server failed: start again on another node",
              Outcome::failed_elsewhere};
    case ESTALE:
      return {"the file server has lost the file: check the mount", Outcome::failed_elsewhere};
    case EMFILE:
    case ENFILE:
      return {"too many open files: raise ulimit -n", Outcome::failed_elsewhere};
    default:
      return {"check the file system that holds the store", Outcome::failed_elsewhere};
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle) {
    if (errno == EACCES) return;  // may be entered but not read: there is no way to sync it
    throw_file_error("open folder", folder, errno);
  }
  // Some network file systems cannot sync a folder, and need not.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) throw_file_error("fsync", folder, errno);
}

}  // namespace

void throw_file_error(std::string_view operation, const std::filesystem::path& path, int error) {
  const Advice advice = advice_for(error);
  throw StorageError(
      std::string(operation) + " " + path.string() + ": " + std::generic_category().message(error),
      advice.hint, advice.outcome);
}

FileHandle open_for_reading(const std::filesystem::path& path) {
  for (int attempt = 0;; ++attempt) {
    FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (handle) return handle;
    if (errno == ENOENT) return handle;
    // A file server's handle of a name that was replaced: a second look finds the new one.
    if ((errno == ESTALE && attempt < 3) || errno == EINTR) continue;
    throw_file_error("open", path, errno);
  }
}

std::size_t read_at(const FileHandle& file, const std::filesystem::path& path, std::uint64_t offset,
                    std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(file.get(), into.data() + done, into.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("read", path, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void write_at(const FileHandle& file, const std::filesystem::path& path, std::uint64_t offset,
              std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_file_error("write", path, errno);
    // No progress and no error: what POSIX allows for a full device.
    if (put == 0) throw_file_error("write", path, ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void begin_writing(const FileHandle& file, std::uint64_t offset, std::size_t bytes) noexcept {
  ::sync_file_range(file.get(), static_cast<off64_t>(offset), static_cast<off64_t>(bytes),
                    SYNC_FILE_RANGE_WRITE);
}

void sync_file(const FileHandle& file, const std::filesystem::path& path) {
  // After a failed fsync the kernel may have dropped the pages, so that a second try proves
  // nothing.
  if (::fsync(file.get()) != 0) throw_file_error("fsync", path, errno);
}

void sync_folders(const std::filesystem::path& folder, const std::filesystem::path& root) {
  for (std::filesystem::path at = folder;; at = at.parent_path()) {
    sync_folder(at);
    if (at == root || !at.has_relative_path()) return;
  }
}

void make_folders(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) != 0) {
    int error = errno;
    if (error == ENOENT && folder.has_parent_path()) {
      make_folders(folder.parent_path());
      error = ::mkdir(folder.c_str(), 0777) == 0 ? 0 : errno;
    }
    struct stat found = {};
    if (error != 0 && ::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return;
    if (error != 0) throw_file_error("make folder", folder, error == EEXIST ? ENOTDIR : error);
  }
  sync_folder(folder.parent_path());
}

}  // namespace lockstep
