// SPDX-License-Identifier: Apache-2.0
// The steps of one message wait for each other, so that a core takes no more than 0.7 GB/s of it
// however wide its vectors are. Other messages fill the rest of the vectors.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/cpu/md5_blocks.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kAtOnce = 8;  // blocks of each message: of all, they stay in a core's cache

static_assert(std::endian::native == std::endian::little);

/// A message and its padding, block by block.
class Blocks {
 public:
  Blocks() = default;
  explicit Blocks(const Pieces& message) : pieces_(message) {
    std::uint64_t bytes = 0;
    for (const auto& piece : message) bytes += piece.size();
    left_ = (bytes + 1 + sizeof(bytes) + kBlockBytes - 1) / kBlockBytes;
    padded_ = left_ * kBlockBytes - bytes;
    padding_[0] = std::byte{0x80};
    const std::uint64_t bits = 8 * bytes;
    std::memcpy(padding_.data() + padded_ - sizeof(bits), &bits, sizeof(bits));
  }

  std::size_t left() const { return left_; }

  /// 64 bytes, valid until the next call.
  const std::byte* next() {
    --left_;
    if (piece_.size() >= kBlockBytes) {
      const std::byte* bytes = piece_.data();
      piece_ = piece_.subspan(kBlockBytes);
      return bytes;
    }
    for (std::size_t filled = 0; filled < kBlockBytes;) {
      if (piece_.empty()) take_piece();
      const std::size_t count = std::min(kBlockBytes - filled, piece_.size());
      if (count > 0) std::memcpy(joined_.data() + filled, piece_.data(), count);
      piece_ = piece_.subspan(count);
      filled += count;
    }
    return joined_.data();
  }

 private:
  void take_piece() {
    if (pieces_.empty()) {
      piece_ = std::span<const std::byte>(padding_).first(padded_);
      return;
    }
    piece_ = pieces_.front();
    pieces_ = pieces_.subspan(1);
  }

  std::span<const std::span<const std::byte>> pieces_;  // that are not begun
  std::span<const std::byte> piece_;                    // what is left of the one before them
  std::size_t left_ = 0;                                // blocks
  std::size_t padded_ = 0;                              // bytes of padding_
  std::array<std::byte, kBlockBytes + sizeof(std::uint64_t)> padding_ = {};
  std::array<std::byte, kBlockBytes> joined_ = {};  // of several pieces
};

/// At most as many messages as there are lanes.
class Lanes {
 public:
  explicit Lanes(std::span<const Pieces> messages) : used_(messages.size()) {
    constexpr std::array<std::uint32_t, 4> start = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    for (std::size_t word = 0; word < start.size(); ++word) {
      std::fill_n(state_.data() + word * lanes_, lanes_, start[word]);
    }
    for (std::size_t lane = 0; lane < used_; ++lane) messages_[lane] = Blocks(messages[lane]);
  }

  void hash(std::span<Md5Digest> digests) {
    while (const std::size_t count = blocks_of_all()) {
      std::array<bool, kernels::kMd5MostLanes> goes_on = {};
      for (std::size_t lane = 0; lane < used_; ++lane) {
        goes_on[lane] = messages_[lane].left() > 0;
        if (goes_on[lane]) copy_chunks(lane, count);
      }
      // The lane of a message that has ended takes whatever lies there.
      kernels::md5_blocks(state_.data(), reinterpret_cast<const std::uint32_t*>(chunks_.data()),
                          count);
      for (std::size_t lane = 0; lane < used_; ++lane) {
        if (goes_on[lane] && messages_[lane].left() == 0) digests[lane] = digest_of(lane);
      }
    }
  }

 private:
  /// How many every message that goes on has, up to kAtOnce; 0: none goes on.
  std::size_t blocks_of_all() const {
    std::size_t count = 0;
    for (std::size_t lane = 0; lane < used_; ++lane) {
      const std::size_t left = std::min(messages_[lane].left(), kAtOnce);
      if (left > 0) count = count == 0 ? left : std::min(count, left);
    }
    return count;
  }

  void copy_chunks(std::size_t lane, std::size_t count) {
    constexpr std::size_t chunk = 16;  // bytes
    std::byte* to = chunks_.data() + chunk * (lane % 4 * (lanes_ / 4) + lane / 4);
    for (std::size_t block = 0; block < count; ++block) {
      const std::byte* from = messages_[lane].next();
      for (std::size_t at = 0; at < kBlockBytes; at += chunk, to += chunk * lanes_) {
        std::memcpy(to, from + at, chunk);
      }
    }
  }

  Md5Digest digest_of(std::size_t lane) const {
    Md5Digest digest;
    for (std::size_t word = 0; word < 4; ++word) {
      std::memcpy(digest.data() + 4 * word, &state_[word * lanes_ + lane], 4);
    }
    return digest;
  }

  std::size_t lanes_ = kernels::md5_lanes();
  std::size_t used_;
  std::array<Blocks, kernels::kMd5MostLanes> messages_;
  alignas(64) std::array<std::uint32_t, 4 * kernels::kMd5MostLanes> state_ = {};
  alignas(64) std::array<std::byte, kAtOnce* kBlockBytes* kernels::kMd5MostLanes> chunks_ = {};
};

}  // namespace

std::vector<Md5Digest> md5(std::span<const Pieces> messages) {
  std::vector<Md5Digest> digests(messages.size());
  const std::size_t lanes = kernels::md5_lanes();
  for (std::size_t first = 0; first < messages.size(); first += lanes) {
    const std::size_t count = std::min(lanes, messages.size() - first);
    Lanes(messages.subspan(first, count)).hash(std::span(digests).subspan(first, count));
  }
  return digests;
}

}  // namespace lockstep
