// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::s3 {

// Values of header fields, as a server or something on the way to it may have sent them.

/// Decimal digits alone; nothing for anything else, and for what does not fit 64 bits.
std::optional<std::uint64_t> parse_number(std::string_view text);

struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;   // the byte itself is in it; at least `first`
  std::uint64_t total = 0;  // of the object; more than `last`
};

/// Of "bytes 0-9/100". Nothing where a number is missing or contradicts another.
std::optional<ContentRange> parse_content_range(std::string_view text);

/// The pause that a Retry-After asks for, at most an hour; none where it is a date or nonsense.
std::chrono::seconds parse_retry_after(std::string_view text);

}  // namespace lockstep::s3
