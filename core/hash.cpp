// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void require(int status, const char* step) {
  if (status == 1) return;
  throw UsageError(std::string("SHA-256 failed in ") + step, "check the OpenSSL installation");
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  require(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), "init");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), "update");
}

void Sha256::update(std::string_view text) { update(bytes_of(text)); }

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr), "finish");
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Sha256Digest sha256(std::string_view text) { return sha256(bytes_of(text)); }

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  // ISA-L works on the inverted register, takes an int length, and does not write to the buffer.
  constexpr std::size_t piece = std::size_t{1} << 30;
  std::uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const std::size_t size = std::min(piece, bytes.size());
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(size), crc);
    bytes = bytes.subspan(size);
  }
  return ~crc;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::uint8_t> buffer(bytes);
  std::size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = getrandom(buffer.data() + filled, bytes - filled, 0);
    if (got < 0) throw DeviceError("getrandom failed", "the operating system has no randomness");
    filled += static_cast<std::size_t>(got);
  }
  return to_hex(buffer);
}

}  // namespace lockstep
