// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/nccl_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <random>

namespace lockstep::fake {
namespace {

// What an ncclUniqueId holds.
struct Name {
  std::uint64_t nonce;  // a number of a file may be used again
  std::int32_t process;
  std::int32_t file;
};
static_assert(sizeof(Name) <= sizeof(ncclUniqueId));
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

Name name_of(const ncclUniqueId& id) {
  Name name{};
  std::memcpy(&name, &id, sizeof name);
  return name;
}

struct OpenFiles {
  std::mutex mutex;
  std::map<std::uint64_t, int> files;  // by nonce
};
OpenFiles& open_files() {
  static OpenFiles& instance = *new OpenFiles;
  return instance;
}

Shared* map(int file) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

}  // namespace

bool Segment::make(ncclUniqueId& id, std::string& error) {
  const int file = memfd_create("lockstep-fake-nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) {
    error = std::string("memfd: ") + std::strerror(errno);
    if (file >= 0) close(file);
    return false;
  }
  std::random_device random;
  const std::uint64_t nonce = (std::uint64_t{random()} << 32U) | random();
  Shared* shared = map(file);
  if (shared == nullptr) {
    error = std::string("mmap: ") + std::strerror(errno);
    close(file);
    return false;
  }
  shared->nonce = nonce;
  munmap(shared, sizeof(Shared));
  const Name name{.nonce = nonce, .process = getpid(), .file = file};
  std::memset(&id, 0, sizeof id);
  std::memcpy(&id, &name, sizeof name);
  const std::lock_guard lock(open_files().mutex);
  open_files().files[nonce] = file;
  return true;
}

void Segment::forget(const ncclUniqueId& id) {
  const Name name = name_of(id);
  if (name.process != getpid()) return;
  const std::lock_guard lock(open_files().mutex);
  const auto found = open_files().files.find(name.nonce);
  if (found == open_files().files.end()) return;
  close(found->second);
  open_files().files.erase(found);
}

std::shared_ptr<Segment> Segment::open(const ncclUniqueId& id, std::string& error) {
  const Name name = name_of(id);
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    error = "the process that made the id is gone: " + path + ": " + std::strerror(errno);
    return nullptr;
  }
  Shared* shared = map(file);
  close(file);
  if (shared == nullptr) {
    error = std::string("mmap: ") + std::strerror(errno);
    return nullptr;
  }
  auto segment = std::make_shared<Segment>(shared);
  if (shared->nonce != name.nonce) {
    error = "the id is of another communicator";
    return nullptr;
  }
  return segment;
}

Segment::~Segment() { munmap(shared_, sizeof(Shared)); }

void Segment::ring() {
  shared_->bell.fetch_add(1);
  syscall(SYS_futex, &shared_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// For at most 2 ms: not everything that ends a wait rings this bell.
void Segment::sleep(std::uint32_t seen) {
  const timespec limit{.tv_sec = 0, .tv_nsec = 2'000'000};
  syscall(SYS_futex, &shared_->bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace lockstep::fake
