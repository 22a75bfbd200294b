// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/state_dict.h"
#include "lockstep/core/tensor.h"
#include "runtime/checkpoint/head.h"

namespace lockstep {

/// The bytes of each fragment of `head` in `state`: views [bytes] u8, where the state lies.
std::vector<Tensor> pieces_of(const ShardHead& head, const StateDict& state);

/// Where bytes of the host begin.
std::vector<const std::byte*> addresses_of(const std::vector<Tensor>& pieces);

/// A copy on the host of what a rank's shard needs. Its memory is kept from copy to copy, and is
/// page-locked where the state lies on a GPU and the system allows it.
class Snapshot {
 public:
  /// CheckpointOptions::memory_left.
  using MemoryLeft = std::function<std::optional<std::uint64_t>()>;

  /// Copies the pieces, which nobody writes meanwhile; those of before are gone. Throws
  /// StorageError if there is no memory: the copy is then empty and holds none.
  void take(const std::vector<Tensor>& pieces, const MemoryLeft& memory_left);
  /// Of each piece.
  const std::vector<const std::byte*>& data() const noexcept { return data_; }
  /// Why copies from the GPU are slower than they should be; empty where they are not.
  const std::string& not_page_locked() const noexcept { return not_page_locked_; }

 private:
  void reserve(std::uint64_t bytes, Device device, const MemoryLeft& memory_left);
  void allocate(std::uint64_t bytes, Device device);

  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t capacity_ = 0;
  Device device_;  // of the last state
  std::string not_page_locked_;
  std::vector<const std::byte*> data_;
};

}  // namespace lockstep
