// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/shared_memory/space.h"
#include "collectives/shm/fd_passing.h"

namespace lockstep {

/// An anonymous file (memfd) that grows, mapped by every rank for itself.
class ShmSpace final : public shared_memory::Space {
 public:
  /// A new, empty file of this process. Throws DeviceError.
  static FileHandle make_file();

  explicit ShmSpace(FileHandle file) : file_(std::move(file)) {}
  ~ShmSpace() override;
  ShmSpace(const ShmSpace&) = delete;
  ShmSpace& operator=(const ShmSpace&) = delete;

  const FileHandle& file() const noexcept { return file_; }

  void extend(std::size_t offset, std::size_t bytes) override;
  std::byte* map(std::size_t offset, std::size_t bytes) override;
  void discard(std::byte* begin, std::size_t bytes) noexcept override;

 private:
  struct Mapping {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  FileHandle file_;
  std::vector<Mapping> mappings_;
};

}  // namespace lockstep
