// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
/// page-locked where the state lies on a GPU.
class Snapshot {
 public:
  /// Copies the pieces, which nobody writes meanwhile; those of before are gone. Throws
  /// StorageError if there is no memory.
  void take(const std::vector<Tensor>& pieces);
  /// Of each piece.
  const std::vector<const std::byte*>& data() const noexcept { return data_; }

 private:
  void reserve(std::uint64_t bytes, Device device);

  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t capacity_ = 0;
  Device device_;  // of the last state
  std::vector<const std::byte*> data_;
};

}  // namespace lockstep
