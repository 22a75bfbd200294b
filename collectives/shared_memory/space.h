// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lockstep::shared_memory {

/// Bytes that all ranks of a group see, named by their offset: one rank's way to them.
///
/// Lives at least as long as the last tensor that allocate() gave out.
class Space {
 public:
  virtual ~Space() = default;
  /// Makes the zero-filled bytes [offset, offset + bytes) exist. Called by rank 0 alone, before any
  /// rank maps them. Throws DeviceError.
  virtual void extend(std::size_t offset, std::size_t bytes) = 0;
  /// The address of [offset, offset + bytes), a range that was extended as a whole. It stays until
  /// the space is gone. Throws DeviceError.
  virtual std::byte* map(std::size_t offset, std::size_t bytes) = 0;
  /// Gives memory back to the system; the addresses stay valid and their contents are unspecified.
  /// Any thread.
  virtual void discard(std::byte* begin, std::size_t bytes) noexcept = 0;
};

/// madvise over the whole pages inside [begin, begin + bytes).
void advise_whole_pages(std::byte* begin, std::size_t bytes, int advice) noexcept;

}  // namespace lockstep::shared_memory
