// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/core/hash.h"

namespace lockstep::s3 {

/// The bytes that a request sends, where they lie: nothing is copied.
class Body {
 public:
  Body() = default;
  Body(std::span<const std::byte> bytes) { add(bytes); }  // NOLINT(google-explicit-constructor)

  void add(std::span<const std::byte> bytes);
  void add_zeros(std::uint64_t count);
  std::uint64_t size() const noexcept { return size_; }
  const Pieces& pieces() const noexcept { return pieces_; }

 private:
  Pieces pieces_;
  std::uint64_t size_ = 0;
};

/// Reads a body from its begin to its end, or again.
class BodyReader {
 public:
  /// `body` outlives this.
  explicit BodyReader(const Body& body) : body_(body) {}

  /// Fills `into` as far as there are bytes. Returns how many.
  std::size_t read(std::span<std::byte> into);
  void seek(std::uint64_t offset);

 private:
  const Body& body_;
  std::size_t piece_ = 0;   // index
  std::size_t within_ = 0;  // bytes of it that are read
};

}  // namespace lockstep::s3
