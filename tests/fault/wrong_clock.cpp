// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: a machine whose clock is WRONG_CLOCK seconds ahead (behind where negative).
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  const char* seconds = std::getenv("WRONG_CLOCK");
  if (result == 0 && clock == CLOCK_REALTIME && seconds != nullptr) {
    now->tv_sec += std::strtol(seconds, nullptr, 10);
  }
  return result;
}
