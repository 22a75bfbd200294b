// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace lockstep::s3 {

/// The bytes of a part while it is filled, sent and repeated. Bytes that are never written are
/// zero; where pieces come in rising order no byte is touched twice for that.
class PartBuffer {
 public:
  PartBuffer() = default;
  explicit PartBuffer(std::size_t size);

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  void write(std::size_t offset, std::span<const std::byte> bytes);
  /// All of it, the rest zeroed.
  std::span<const std::byte> bytes();

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
  std::size_t filled_ = 0;  // from here on nothing is written or zeroed yet
};

}  // namespace lockstep::s3
