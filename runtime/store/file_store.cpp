// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/core/error.h"
#include "runtime/store/file_calls.h"
#include "runtime/store/object_key.h"

namespace lockstep {
namespace {

// So much is handed to the disk at once; less is there as soon if the sync alone asks for it.
constexpr std::uint64_t kForDisk = std::uint64_t{4} << 20;

namespace fs = std::filesystem;

class FileWriter final : public ObjectWriter {
 public:
  FileWriter(fs::path root, fs::path temporary, fs::path target, std::uint64_t size)
      : root_(std::move(root)),
        temporary_(std::move(temporary)),
        target_(std::move(target)),
        size_(size) {
    make_folders(temporary_.parent_path());
    file_ = FileHandle(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_) throw_file_error("create", temporary_, errno);
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
      const int error = errno;
      ::unlink(temporary_.c_str());
      throw_file_error("set the size of", temporary_, error);
    }
  }

  ~FileWriter() override {
    // Left behind, it would be swept by the next launch; an error here changes nothing.
    ::unlink(temporary_.c_str());
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset > size_ || bytes.size() > size_ - offset) {
      throw UsageError("object " + target_.string() + ": a piece lies beyond its size",
                       "create the object with its whole size");
    }
    write_at(file_, temporary_, offset, bytes);
    // The disk begins with what there is while more is made; an error shows at the fsync.
    if (offset != end_) begin_ = offset;
    end_ = offset + bytes.size();
    if (end_ - begin_ < kForDisk) return;
    begin_writing(file_, begin_, static_cast<std::size_t>(end_ - begin_));
    begin_ = end_;
  }

  Creation commit() override {
    sync_file(file_, temporary_);
    const Creation result = link_to_target();
    if (result == Creation::created) sync_folders(target_.parent_path(), root_);
    return result;
  }

 private:
  Creation link_to_target() const {
    for (int attempt = 0;; ++attempt) {
      make_folders(target_.parent_path());
      if (::link(temporary_.c_str(), target_.c_str()) == 0) return Creation::created;
      const int error = errno;
      // An empty folder may be removed by a sweep between the two calls.
      if (error == ENOENT && attempt < 8) continue;
      if (is_linked()) return Creation::created;  // done, though its answer was lost
      if (error == EEXIST) return Creation::exists;
      if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
        throw ConfigError(
            "link " + target_.string() + ": " + std::generic_category().message(error),
            "this file system has no hard links (FAT, SMB and some FUSE mounts have none), so two "
            "launches could overwrite each other's checkpoints: set store to another one");
      }
      throw_file_error("link", target_, error);
    }
  }

  bool is_linked() const {
    struct stat mine = {};
    struct stat there = {};
    return ::fstat(file_.get(), &mine) == 0 && ::stat(target_.c_str(), &there) == 0 &&
           mine.st_nlink == 2 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  }

  fs::path root_;
  fs::path temporary_;
  fs::path target_;
  std::uint64_t size_;
  FileHandle file_;
  std::uint64_t begin_ = 0;  // [begin_, end_): written, and the disk not told
  std::uint64_t end_ = 0;
};

/// Adds the files below `folder`. What vanishes under the walk is not there.
void walk(const fs::path& folder, const fs::path& root, std::vector<ObjectInfo>& found) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code gone;
    if (at->is_directory(gone) && !at->is_symlink(gone)) {
      walk(at->path(), root, found);
    } else if (at->is_regular_file(gone)) {
      const std::uint64_t size = at->file_size(gone);
      if (!gone) found.push_back({at->path().lexically_relative(root).string(), size});
    }
  }
  if (error && error.value() != ENOENT) throw_file_error("list", folder, error.value());
}

}  // namespace

FileStore::FileStore(const fs::path& root) : root_(fs::absolute(root).lexically_normal()) {
  if (!root_.has_filename()) root_ = root_.parent_path();  // a trailing slash
}

std::string FileStore::uri() const { return "file:" + root_.string(); }

fs::path FileStore::path_of(std::string_view key) const {
  check_key(key);
  return root_ / key;
}

std::optional<std::string> FileStore::read(std::string_view key) {
  const fs::path path = path_of(key);
  const FileHandle file = open_for_reading(path);
  if (!file) return std::nullopt;
  struct stat found = {};
  if (::fstat(file.get(), &found) != 0) throw_file_error("stat", path, errno);
  if (S_ISDIR(found.st_mode)) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(found.st_size), '\0');
  bytes.resize(read_at(file, path, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

std::optional<std::size_t> FileStore::read(std::string_view key, std::uint64_t offset,
                                           std::span<std::byte> into, std::string_view /*etag*/) {
  const fs::path path = path_of(key);
  const FileHandle file = open_for_reading(path);
  if (!file) return std::nullopt;
  return read_at(file, path, offset, into);
}

std::optional<ObjectInfo> FileStore::stat(std::string_view key) {
  const fs::path path = path_of(key);
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_file_error("stat", path, errno);
  }
  if (S_ISDIR(found.st_mode)) return std::nullopt;
  return ObjectInfo{.key = std::string(key), .size = static_cast<std::uint64_t>(found.st_size)};
}

Creation FileStore::create_if_absent(std::string_view key, std::string_view bytes,
                                     std::uint64_t epoch) {
  const auto writer = create(key, bytes.size(), epoch);
  writer->write(0, std::as_bytes(std::span(bytes)));
  return writer->commit();
}

std::unique_ptr<ObjectWriter> FileStore::create(std::string_view key, std::uint64_t size,
                                                std::uint64_t epoch) {
  return std::make_unique<FileWriter>(root_, root_ / temporary_key(epoch), path_of(key), size);
}

std::vector<ObjectInfo> FileStore::list(std::string_view prefix) {
  const std::size_t slash = prefix.rfind('/');
  std::vector<ObjectInfo> found;
  walk(slash == std::string_view::npos ? root_ : root_ / prefix.substr(0, slash), root_, found);
  std::erase_if(found, [&](const ObjectInfo& info) { return !info.key.starts_with(prefix); });
  std::sort(found.begin(), found.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  return found;
}

void FileStore::remove(std::string_view key) {
  const fs::path path = path_of(key);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_file_error("remove", path, errno);
  // The folder of a save goes with its last object; it is never used again.
  if (std::count(key.begin(), key.end(), '/') > 1) ::rmdir(path.parent_path().c_str());
}

std::vector<UnfinishedObject> FileStore::unfinished(std::string_view /*prefix*/) { return {}; }

void FileStore::abandon(const UnfinishedObject& /*object*/) {}

}  // namespace lockstep
