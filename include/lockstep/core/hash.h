// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using Sha256Digest = std::array<std::uint8_t, 32>;
using Md5Digest = std::array<std::uint8_t, 16>;

/// Bytes where they lie, one piece after the other.
using Pieces = std::vector<std::span<const std::byte>>;

/// SHA-256 in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// The digest; afterwards the object is used up.
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view text);

/// MD5 of each message. 4, 8 or 16 of a size, as this machine's vectors allow, take little longer
/// together than one. Finds faults; it is no proof against somebody who chooses the bytes.
std::vector<Md5Digest> md5(std::span<const Pieces> messages);

/// CRC32C (Castagnoli): "123456789" gives e3069283. `seed` is the result of the bytes before.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

/// Lower-case hexadecimal.
std::string to_hex(std::span<const std::uint8_t> bytes);

/// `bytes` random bytes from the operating system, as hexadecimal: nonces and identifiers.
std::string random_hex(std::size_t bytes);

}  // namespace lockstep
