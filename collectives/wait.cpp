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
constexpr microseconds kBrief{40};
constexpr microseconds kShortestSleep{50};
constexpr microseconds kLongestSleep{500};

}  // namespace

std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

bool Backoff::pause() noexcept {
  if (spins_ >= kPauses) return false;
  ++spins_;
  pause_cpu();
  return true;
}

// Since the pauses ended.
std::chrono::nanoseconds Backoff::quiet() {
  const auto now = std::chrono::steady_clock::now();
  if (spins_ == kPauses) {
    ++spins_;
    quiet_ = now;
  }
  return now - quiet_;
}

bool Backoff::step_briefly() {
  if (pause()) return true;
  if (quiet() >= kBrief) return false;
  std::this_thread::yield();
  return true;
}

std::optional<microseconds> Backoff::step() {
  if (pause()) return std::nullopt;
  const auto quiet = this->quiet();
  if (quiet < kYieldFor) {
    std::this_thread::yield();
    return std::nullopt;
  }
  // An eighth of what has been waited already: late by little, and a long wait costs few wake-ups.
  return std::clamp(std::chrono::duration_cast<microseconds>(quiet / 8), kShortestSleep,
                    kLongestSleep);
}

Wait::Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
           std::string operation)
    : Wait(abort, deadline, [text = std::move(operation)] { return text; }) {}

Wait::Wait(const AbortSignal& abort, std::chrono::steady_clock::time_point deadline,
           std::function<std::string()> operation)
    : abort_(abort),
      deadline_(deadline),
      began_(std::chrono::steady_clock::now()),
      operation_(std::move(operation)) {}

void Wait::check() {
  abort_.throw_if_raised();
  const auto now = std::chrono::steady_clock::now();
  if (now < deadline_) return;
  throw TimeoutError(operation() + ": gave up after " + seconds_text(now - began_),
                     "look at the log of the rank that is late; timeout.collective sets the time");
}

void Wait::step() {
  check();
  if (std::exchange(moved_, false)) backoff_.reset();
  if (const auto sleep = backoff_.step()) std::this_thread::sleep_for(*sleep);
}

void Wait::suspend(std::coroutine_handle<> at, PollOf poll_of, void* poll) noexcept {
  at_ = at;
  poll_of_ = poll_of;
  poll_ = poll;
}

bool Wait::resume() {
  try {
    if (!poll_of_(poll_)) {
      check();
      return std::exchange(moved_, false);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  moved_ = false;
  std::exchange(at_, nullptr).resume();
  return true;
}

void run_to_end(const Task& task, Wait& wait) {
  task.start();
  while (!task.done()) {
    if (wait.resume()) {
      wait.progress();
    } else {
      wait.step();
    }
  }
  task.rethrow();
}

}  // namespace lockstep
