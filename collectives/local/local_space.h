// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>

#include "collectives/shared_memory/space.h"

namespace lockstep {

/// Ordinary memory of one process, which its threads share as they are. One object for all ranks;
/// calls from any thread.
class LocalSpace final : public shared_memory::Space {
 public:
  LocalSpace() = default;
  ~LocalSpace() override;
  LocalSpace(const LocalSpace&) = delete;
  LocalSpace& operator=(const LocalSpace&) = delete;

  void extend(std::size_t offset, std::size_t bytes) override;
  std::byte* map(std::size_t offset, std::size_t bytes) override;
  void discard(std::byte* begin, std::size_t bytes) noexcept override;

 private:
  struct Range {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  std::mutex mutex_;
  std::map<std::size_t, Range> ranges_;  // by offset
};

}  // namespace lockstep
