// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/token_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

class ByteSource final : public TokenSource {
 public:
  explicit ByteSource(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}

  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(bytes_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> into) const override {
    std::copy_n(bytes_.begin() + first, into.size(), into.begin());
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

void check_range(std::int64_t first, std::int64_t count, std::int64_t size) {
  if (first >= 0 && count >= 0 && first <= size && count <= size - first) return;
  throw UsageError("tokens [" + std::to_string(first) + ", +" + std::to_string(count) +
                       ") of a stream of " + std::to_string(size),
                   "stay inside the stream");
}

}  // namespace

TokenStream::TokenStream(std::vector<std::uint8_t> bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  append(std::make_shared<ByteSource>(std::move(bytes)), 0, count);
}

template <typename Body>
void TokenStream::for_parts(std::int64_t first, std::int64_t count, const Body& body) const {
  check_range(first, count, size_);
  if (count == 0) return;
  auto part = std::upper_bound(parts_.begin(), parts_.end(), first,
                               [](std::int64_t at, const Part& p) { return at < p.begin; });
  for (--part; count > 0; ++part) {
    const std::int64_t skipped = first - part->begin;
    const std::int64_t here = std::min(count, part->count - skipped);
    body(*part, part->first + skipped, here);
    first += here;
    count -= here;
  }
}

void TokenStream::read(std::int64_t first, std::span<std::int32_t> into) const {
  for_parts(first, static_cast<std::int64_t>(into.size()),
            [&](const Part& part, std::int64_t at, std::int64_t count) {
              const auto some = static_cast<std::size_t>(count);
              part.source->read(at, into.first(some));
              into = into.subspan(some);
            });
}

void TokenStream::append(std::shared_ptr<const TokenSource> source, std::int64_t first,
                         std::int64_t count) {
  check_range(first, count, source->size());
  if (count == 0) return;
  parts_.push_back({.source = std::move(source), .first = first, .begin = size_, .count = count});
  size_ += count;
}

TokenStream TokenStream::slice(std::int64_t first, std::int64_t count) const {
  TokenStream stream;
  for_parts(first, count, [&](const Part& part, std::int64_t at, std::int64_t some) {
    stream.append(part.source, at, some);
  });
  return stream;
}

}  // namespace lockstep
