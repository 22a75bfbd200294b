// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/utc_time.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace lockstep {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = milliseconds / 1000;
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> date = {};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::array<char, 8> rest = {};
  std::snprintf(rest.data(), rest.size(), ".%03dZ", static_cast<int>(milliseconds % 1000));
  return std::string(date.data()) + rest.data();
}

}  // namespace lockstep
