// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: appends to the file DISK_TRACE what the process asks of a disk, a line each, so
// that a test can tell what a power cut would have left. What makes something durable is told once
// it is done, what depends on that before it is begun.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace {

void tell(const std::string& line) {
  const int before = errno;
  const char* path = std::getenv("DISK_TRACE");
  const int file =
      path != nullptr ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
  if (file >= 0) {
    const std::string text = line + "\n";
    if (write(file, text.data(), text.size()) < 0) std::abort();
    close(file);
  }
  errno = before;
}

std::string path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "?";
}

}  // namespace

extern "C" {

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  tell("write\t" + path_of(file));
  return syscall(SYS_pwrite64, file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return pwrite(file, bytes, count, offset);
}

int fsync(int file) {
  const auto result = static_cast<int>(syscall(SYS_fsync, file));
  if (result == 0) tell("sync\t" + path_of(file));
  return result;
}

int link(const char* from, const char* to) noexcept {
  tell(std::string("link\t") + from + "\t" + to);
  return static_cast<int>(syscall(SYS_link, from, to));
}

int mkdir(const char* path, mode_t mode) noexcept {
  const auto result = static_cast<int>(syscall(SYS_mkdir, path, mode));
  if (result == 0) tell(std::string("mkdir\t") + path);
  return result;
}

}  // extern "C"
