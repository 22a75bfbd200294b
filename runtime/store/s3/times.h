// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::s3 {

using WallTime = std::chrono::system_clock::time_point;

/// 20130524T000000Z, as signatures have it.
std::string signing_time(WallTime time);

/// Of a Date header: "Fri, 24 May 2013 00:00:00 GMT"; nothing if it is none or not of the years
/// 1970 to 2200.
std::optional<WallTime> parse_http_date(const std::string& text);

/// Of "2013-05-24T00:00:00Z", also with a fraction, which is cut; nothing if it is none. Years
/// before 1970 and after 2200 ("9999" is said for never) are as these.
std::optional<WallTime> parse_iso_time(const std::string& text);

}  // namespace lockstep::s3
