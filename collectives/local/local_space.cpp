// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/local_space.h"

#include <sys/mman.h>

#include <string>

#include "lockstep/core/error.h"

namespace lockstep {

LocalSpace::~LocalSpace() {
  for (const auto& [offset, range] : ranges_) munmap(range.memory, range.bytes);
}

void LocalSpace::extend(std::size_t offset, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw DeviceError("no memory for " + std::to_string(bytes) + " bytes of gradients",
                      "use a smaller model or more memory");
  }
  const std::lock_guard lock(mutex_);
  ranges_[offset] = {.memory = memory, .bytes = bytes};
}

std::byte* LocalSpace::map(std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(offset);
  if (found == ranges_.end() || found->second.bytes < bytes) {
    throw UsageError("no memory at offset " + std::to_string(offset),
                     "rank 0 extends the space before anybody maps it");
  }
  return static_cast<std::byte*>(found->second.memory);
}

void LocalSpace::discard(std::byte* begin, std::size_t bytes) noexcept {
  shared_memory::advise_whole_pages(begin, bytes, MADV_DONTNEED);
}

}  // namespace lockstep
