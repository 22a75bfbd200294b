// SPDX-License-Identifier: Apache-2.0
#include "collectives/shm/shm_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

DeviceError memory_error(const std::string& what) {
  return {what + ": " + std::generic_category().message(errno),
          "use a smaller model, fewer ranks a host, or more memory"};
}

}  // namespace

FileHandle ShmSpace::make_file() {
  FileHandle file(memfd_create("lockstep", MFD_CLOEXEC));
  if (file.get() < 0) throw memory_error("making shared memory");
  return file;
}

ShmSpace::~ShmSpace() {
  for (const Mapping& mapping : mappings_) munmap(mapping.memory, mapping.bytes);
}

void ShmSpace::extend(std::size_t offset, std::size_t bytes) {
  if (ftruncate(file_.get(), static_cast<off_t>(offset + bytes)) != 0) {
    throw memory_error("growing shared memory by " + std::to_string(bytes) + " bytes");
  }
}

std::byte* ShmSpace::map(std::size_t offset, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(),
                      static_cast<off_t>(offset));
  if (memory == MAP_FAILED) {
    throw memory_error("mapping " + std::to_string(bytes) + " bytes of shared memory");
  }
  mappings_.push_back({.memory = memory, .bytes = bytes});
  return static_cast<std::byte*>(memory);
}

void ShmSpace::discard(std::byte* begin, std::size_t bytes) noexcept {
  shared_memory::advise_whole_pages(begin, bytes, MADV_REMOVE);
}

}  // namespace lockstep
