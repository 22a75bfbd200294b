// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/core_neighbour.h"

#include <sched.h>

namespace lockstep::shared_memory {
namespace {

constexpr int kTimes = 4;
constexpr std::chrono::milliseconds kRest{20};  // where it does not help, it costs little

}  // namespace

int current_core() noexcept { return ::sched_getcpu(); }

void CoreNeighbour::waited_for(int core) noexcept {
  if (core != current_core()) {
    times_ = 0;
    return;
  }
  if (++times_ < kTimes) return;
  times_ = 0;
  const auto now = std::chrono::steady_clock::now();
  if (now - moved_ < kRest) return;
  moved_ = now;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (CPU_COUNT(&allowed) < ranks_ || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  // It stays where the first call puts it until the scheduler has a reason to move it again.
  if (::sched_setaffinity(0, sizeof others, &others) == 0) {
    ::sched_setaffinity(0, sizeof allowed, &allowed);
  }
}

}  // namespace lockstep::shared_memory
