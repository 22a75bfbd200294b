// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/segments.h"

#include <sys/mman.h>

#include <functional>

namespace lockstep::shared_memory {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Regions a large power of two apart meet in the same cache sets, which costs 2–5 times the speed;
// this shift (a multiple of 64) cures it.
constexpr std::size_t kStagger = 136'256;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::size_t stride_of(std::size_t bytes) { return round_up(bytes, kAlign) + kStagger; }

}  // namespace

Segments::Segments(std::shared_ptr<Space> space, int rank, int size, std::size_t first_offset)
    : space_(std::move(space)),
      rank_(rank),
      size_(size),
      next_offset_(round_up(first_offset, kHugePage)) {}

std::size_t Segments::segment_bytes(std::size_t bytes) const noexcept {
  return round_up(stride_of(bytes) * static_cast<std::size_t>(size_), kHugePage);
}

void Segments::extend(std::size_t bytes) { space_->extend(next_offset_, segment_bytes(bytes)); }

std::shared_ptr<std::byte> Segments::append(std::size_t bytes) {
  const std::size_t all = segment_bytes(bytes);
  const Segment segment{
      .base = space_->map(next_offset_, all), .bytes = bytes, .stride = stride_of(bytes)};
  advise_whole_pages(segment.base, all, MADV_HUGEPAGE);
  next_offset_ += all;
  segments_.push_back(segment);
  std::byte* mine = segment.base + static_cast<std::size_t>(rank_) * segment.stride;
  // Peers read a region only inside an operation, which ends on all ranks before its memory goes.
  return {mine, [space = space_, bytes](std::byte* begin) { space->discard(begin, bytes); }};
}

std::optional<Place> Segments::find(const void* data, std::size_t bytes) const noexcept {
  const auto* wanted = static_cast<const std::byte*>(data);
  const std::less_equal<const std::byte*> not_after;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const std::byte* begin = segment.base + static_cast<std::size_t>(rank_) * segment.stride;
    if (not_after(begin, wanted) && not_after(wanted + bytes, begin + segment.bytes)) {
      return Place{.segment = i, .offset = static_cast<std::uint64_t>(wanted - begin)};
    }
  }
  return std::nullopt;
}

std::byte* Segments::at(int rank, Place place) const {
  const Segment& segment = segments_.at(place.segment);
  return segment.base + static_cast<std::size_t>(rank) * segment.stride + place.offset;
}

}  // namespace lockstep::shared_memory
