// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/times.h"

#include <time.h>  // NOLINT(modernize-deprecated-headers): strptime, timegm

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::s3 {
namespace {

// Beyond these the nanoseconds of a clock would overflow sooner or later.
constexpr std::time_t kEarliest = 0;            // 1970
constexpr std::time_t kLatest = 7'258'118'400;  // 2200

/// What `format` leaves of `text`, and the time; nothing where it does not fit.
std::optional<std::pair<std::time_t, std::string_view>> parsed(const std::string& text,
                                                               const char* format) {
  std::tm fields = {};
  const char* rest = strptime(text.c_str(), format, &fields);
  if (rest == nullptr) return std::nullopt;
  return std::pair(timegm(&fields), std::string_view(rest));
}

}  // namespace

std::string signing_time(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm fields = {};
  gmtime_r(&seconds, &fields);
  std::array<char, 32> text = {};
  const std::size_t length = strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &fields);
  return {text.data(), length};
}

std::optional<WallTime> parse_http_date(const std::string& text) {
  const auto found = parsed(text, "%a, %d %b %Y %H:%M:%S");
  if (!found || found->second != " GMT") return std::nullopt;
  if (found->first < kEarliest || found->first > kLatest) return std::nullopt;
  return std::chrono::system_clock::from_time_t(found->first);
}

std::optional<WallTime> parse_iso_time(const std::string& text) {
  auto found = parsed(text, "%Y-%m-%dT%H:%M:%S");
  if (!found) return std::nullopt;
  std::string_view rest = found->second;
  if (rest.starts_with('.')) {
    const std::size_t end = rest.find_first_not_of("0123456789", 1);
    if (end == std::string_view::npos || end == 1) return std::nullopt;
    rest.remove_prefix(end);
  }
  if (rest != "Z" && rest != "+00:00") return std::nullopt;
  return std::chrono::system_clock::from_time_t(std::clamp(found->first, kEarliest, kLatest));
}

}  // namespace lockstep::s3
