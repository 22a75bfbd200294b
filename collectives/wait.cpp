// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A few µs of pauses. More would hold a core that the awaited rank may need: with four ranks on two
// cores 2000 pauses make a small operation 0.1–0.5 ms long, 50 make it 6 µs.
constexpr unsigned kPauses = 50;
constexpr milliseconds kYieldFor{1};
constexpr microseconds kShortestSleep{50};
constexpr microseconds kLongestSleep{500};

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

Wait::Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
           std::string operation)
    : abort_(abort),
      deadline_(deadline),
      began_(std::chrono::steady_clock::now()),
      quiet_(began_),
      operation_(std::move(operation)) {}

void Wait::step() {
  if (abort_.raised()) abort_.throw_if_raised();
  if (spins_ < kPauses) {
    ++spins_;
    pause_cpu();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (spins_ == kPauses) {
    ++spins_;
    quiet_ = now;
  }
  if (now >= deadline_) {
    throw TimeoutError(
        operation_ + ": gave up after " + seconds_text(now - began_),
        "look at the log of the rank that is late; timeout.collective sets the time");
  }
  const auto quiet = now - quiet_;
  if (quiet < kYieldFor) {
    std::this_thread::yield();
    return;
  }
  // An eighth of what has been waited already: late by little, and a long wait costs few wake-ups.
  const auto sleep = std::clamp(std::chrono::duration_cast<microseconds>(quiet / 8), kShortestSleep,
                                kLongestSleep);
  std::this_thread::sleep_for(sleep);
}

void Wait::progress() noexcept { spins_ = 0; }

}  // namespace lockstep
