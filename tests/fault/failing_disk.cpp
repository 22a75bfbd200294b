// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a disk or a quota that fails when a test wants it to, without a kernel that can.
//
// FAILING_DISK names a file. While it exists and holds "CALL ERRNO BYTES FOLDER", the process's
// calls of CALL (pwrite or fsync) on files in FOLDER fail with ERRNO once BYTES bytes were written
// there; the write that crosses the limit is a short one, as on a real disk. With "stall
// MILLISECONDS 0 FOLDER" each fsync there takes that long.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

struct Order {
  std::array<char, 16> call{};
  int error = 0;
  long bytes = 0;
  std::array<char, 512> folder{};
};

std::atomic<long> written{0};

// What the test wants now; an order without an error where it wants nothing.
Order order() {
  Order found;
  const char* path = std::getenv("FAILING_DISK");
  const int file = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) {
    written = 0;
    return found;
  }
  std::array<char, 600> text{};
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  const bool whole =
      size > 0 && std::sscanf(text.data(), "%15s %d %ld %511[^\n]", found.call.data(), &found.error,
                              &found.bytes, found.folder.data()) == 4;
  return whole ? found : Order();
}

bool lies_in(int file, const Order& wanted) {
  std::array<char, 1024> path{};
  std::array<char, 40> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file);
  if (readlink(link.data(), path.data(), path.size() - 1) <= 0) return false;
  return std::string_view(path.data()).starts_with(wanted.folder.data());
}

ssize_t write_at(int file, const void* bytes, size_t count, off_t offset) {
  const int before = errno;
  const Order wanted = order();
  if (wanted.error != 0 && lies_in(file, wanted)) {
    const long left = std::max(0L, wanted.bytes - written.load());
    if (std::strcmp(wanted.call.data(), "pwrite") == 0 && static_cast<long>(count) > left) {
      if (left == 0) {
        errno = wanted.error;
        return -1;
      }
      count = static_cast<size_t>(left);
    }
    written += static_cast<long>(count);
  }
  errno = before;
  return syscall(SYS_pwrite64, file, bytes, count, offset);
}

}  // namespace

extern "C" {

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return write_at(file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return write_at(file, bytes, count, offset);
}

int fsync(int file) {
  const int before = errno;
  const Order wanted = order();
  if (std::strcmp(wanted.call.data(), "stall") == 0 && lies_in(file, wanted)) {
    usleep(1000 * static_cast<useconds_t>(wanted.error));
  }
  if (wanted.error != 0 && std::strcmp(wanted.call.data(), "fsync") == 0 &&
      written.load() >= wanted.bytes && lies_in(file, wanted)) {
    errno = wanted.error;
    return -1;
  }
  errno = before;
  return static_cast<int>(syscall(SYS_fsync, file));
}

}  // extern "C"
