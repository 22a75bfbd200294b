// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/page_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint64_t kPageBytes = std::uint64_t{4} << 20U;
// From this size on a request of its own costs little, and a page would be copied once more.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;
// Parameters and optimizer state are read side by side, and a tensor may begin in the page before.
constexpr std::size_t kMostPages = 8;

}  // namespace

const PageReader::Page* PageReader::page(const SeenObject& object, std::uint64_t begin) {
  const auto held = std::find_if(pages_.begin(), pages_.end(), [&](const Page& each) {
    return each.begin == begin && each.key == object.key;
  });
  if (held != pages_.end()) {
    pages_.splice(pages_.begin(), pages_, held);
    return &pages_.front();
  }
  Page fresh{.key = object.key, .begin = begin, .bytes = {}};
  if (pages_.size() == kMostPages) {  // its memory serves again
    fresh.bytes = std::move(pages_.back().bytes);
    pages_.pop_back();
  }
  fresh.bytes.resize(kPageBytes);
  const auto got = store_.read(object.key, begin, fresh.bytes, object.etag);
  if (!got) return nullptr;
  fresh.bytes.resize(*got);
  pages_.push_front(std::move(fresh));
  return &pages_.front();
}

std::optional<std::size_t> PageReader::read(const SeenObject& object, std::uint64_t offset,
                                            std::span<std::byte> into) {
  if (into.empty() || into.size() >= kLargeBytes) {
    return store_.read(object.key, offset, into, object.etag);
  }
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint64_t at = offset + done;
    const Page* const found = page(object, at / kPageBytes * kPageBytes);
    if (found == nullptr) return std::nullopt;
    const std::uint64_t within = at - found->begin;
    if (within >= found->bytes.size()) break;  // the object's end
    const std::size_t count =
        std::min<std::size_t>(into.size() - done, found->bytes.size() - within);
    std::memcpy(into.data() + done, found->bytes.data() + within, count);
    done += count;
  }
  return done;
}

}  // namespace lockstep
