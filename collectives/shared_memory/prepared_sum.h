// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/prepared.h"
#include "collectives/shared_memory/shared_memory_backend.h"

namespace lockstep::shared_memory {

/// reduce_parts of arrays whose addresses all ranks know already: two looks at a cache line of each
/// peer and the additions between them, no memory from the heap.
class SharedMemoryBackend::PreparedSum final : public Prepared {
 public:
  /// `detail`: what distinguishes it from others, the same number on every rank.
  PreparedSum(SharedMemoryBackend& backend, std::shared_ptr<const SumPlan> plan, Shown shown,
              std::size_t count, std::uint64_t detail);

  bool begin() override;
  Task finish(Wait& wait) override;

 private:
  // What peers see of this rank.
  enum class Stage : std::uint8_t { away, came, added };
  void come();
  void tell_added();

  SharedMemoryBackend& backend_;
  std::shared_ptr<const SumPlan> plan_;
  Shown shown_;
  std::vector<const float*> sources_;  // shown_.parts
  std::size_t count_;
  Slice slice_;
  Walk walk_;
  std::uint64_t detail_;
  Descriptor descriptor_;
  Stage stage_ = Stage::away;
};

}  // namespace lockstep::shared_memory
