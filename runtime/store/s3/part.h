// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "runtime/store/s3/body.h"

namespace lockstep::s3 {

/// What is written of a part, where it lies.
class Part {
 public:
  Part() = default;
  explicit Part(std::uint64_t size) : size_(size) {}

  bool empty() const noexcept { return size_ == 0; }
  std::uint64_t size() const noexcept { return size_; }
  /// In any order; pieces do not overlap.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) { pieces_[offset] = bytes; }
  /// All of it; zero where nothing is written.
  Body body() const;

 private:
  std::uint64_t size_ = 0;
  std::map<std::uint64_t, std::span<const std::byte>> pieces_;  // by offset
};

}  // namespace lockstep::s3
