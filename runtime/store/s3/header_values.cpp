// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/header_values.h"

#include <algorithm>
#include <charconv>

namespace lockstep::s3 {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view unit = "bytes ";
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (!text.starts_with(unit) || dash == std::string_view::npos ||
      slash == std::string_view::npos || slash < dash) {
    return std::nullopt;
  }
  const auto first = parse_number(text.substr(unit.size(), dash - unit.size()));
  const auto last = parse_number(text.substr(dash + 1, slash - dash - 1));
  const auto total = parse_number(text.substr(slash + 1));
  if (!first || !last || !total || *last < *first || *total <= *last) return std::nullopt;
  return ContentRange{.first = *first, .last = *last, .total = *total};
}

std::chrono::seconds parse_retry_after(std::string_view text) {
  constexpr std::uint64_t most = 3600;
  const auto asked = parse_number(text);
  return std::chrono::seconds(asked ? static_cast<std::int64_t>(std::min(*asked, most)) : 0);
}

}  // namespace lockstep::s3
