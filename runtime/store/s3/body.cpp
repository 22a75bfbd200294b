// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/body.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::s3 {
namespace {

constexpr std::array<std::byte, std::size_t{64} << 10U> kZeros = {};

}  // namespace

void Body::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  size_ += bytes.size();
  if (!pieces_.empty()) {
    std::span<const std::byte>& last = pieces_.back();
    if (last.data() + last.size() == bytes.data()) {
      last = {last.data(), last.size() + bytes.size()};
      return;
    }
  }
  pieces_.push_back(bytes);
}

void Body::add_zeros(std::uint64_t count) {
  size_ += count;
  for (; count > 0; count -= pieces_.back().size()) {
    const std::size_t here = std::min<std::uint64_t>(count, kZeros.size());
    pieces_.push_back(std::span(kZeros).first(here));
  }
}

std::size_t BodyReader::read(std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size() && piece_ < body_.pieces().size()) {
    const auto left = body_.pieces()[piece_].subspan(within_);
    const std::size_t count = std::min(left.size(), into.size() - filled);
    std::memcpy(into.data() + filled, left.data(), count);
    filled += count;
    within_ += count;
    if (count < left.size()) break;
    ++piece_;
    within_ = 0;
  }
  return filled;
}

void BodyReader::seek(std::uint64_t offset) {
  piece_ = 0;
  while (piece_ < body_.pieces().size() && offset >= body_.pieces()[piece_].size()) {
    offset -= body_.pieces()[piece_++].size();
  }
  within_ = offset;
}

}  // namespace lockstep::s3
