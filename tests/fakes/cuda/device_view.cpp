// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/device_view.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <mutex>

#include "tests/fakes/cuda/machine.h"

namespace lockstep::fake {
namespace {

constexpr std::size_t kSpace = std::size_t{256} << 30U;  // addresses only
constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

class Space {
 public:
  Space() : addresses_(reserve()), views_(reserve()) {}

  bool has(std::uintptr_t address) const {
    return address >= addresses_ && address - addresses_ < kSpace;
  }
  std::uintptr_t view_of(std::uintptr_t address) const { return address - addresses_ + views_; }

  // Blocks have pages of their own, with one between them that faults.
  std::uintptr_t take(std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    const std::size_t at = round_up(next_, alignment < kPage ? kPage : alignment);
    const std::size_t pages = round_up(bytes, kPage);
    if (at + pages + kPage > kSpace) die("this process has used up the fake devices' addresses");
    if (mprotect(pointer(views_ + at), pages, PROT_READ | PROT_WRITE) != 0) return 0;
    next_ = at + pages + kPage;
    return addresses_ + at;
  }

  void give_back(std::uintptr_t address, std::size_t bytes) const {
    // Anew without memory behind it.
    mmap(pointer(view_of(address)), round_up(bytes, kPage), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }

  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

 private:
  static std::uintptr_t reserve() {
    void* const space =
        mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) die("no addresses for the fake devices' memory");
    return reinterpret_cast<std::uintptr_t>(space);
  }

  std::uintptr_t addresses_;
  std::uintptr_t views_;
  std::mutex mutex_;
  std::size_t next_ = 0;
};

// Never destroyed, as the memory in it.
Space& space() {
  static Space& instance = *new Space;
  return instance;
}

}  // namespace

void* reserve_device_memory(std::size_t bytes, std::size_t alignment) {
  return Space::pointer(space().take(bytes, alignment));
}

void release_device_memory(void* data, std::size_t bytes) {
  space().give_back(reinterpret_cast<std::uintptr_t>(data), bytes);
}

void* device_view(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return Space::pointer(space().has(address) ? space().view_of(address) : address);
}

void view_arguments(void* args, std::size_t bytes) {
  auto* const words = static_cast<unsigned char*>(args);
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += alignof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, words + at, sizeof word);
    word = device_view(word);
    std::memcpy(words + at, &word, sizeof word);
  }
}

}  // namespace lockstep::fake
