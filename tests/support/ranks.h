// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/local/local_group.h"

namespace lockstep::testing_support {

/// Runs `body` on one thread a rank and joins them. The first exception raises the group's abort
/// signal, so that nobody waits for that rank, and is rethrown here.
inline void run_group(std::vector<std::unique_ptr<Communicator>> group,
                      const std::shared_ptr<AbortSignal>& abort,
                      const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(group.size());
  for (auto& communicator : group) {
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.Move): other threads have filled the group
    const int rank = communicator->rank();
    threads.emplace_back([&, rank, mine = std::move(communicator)] {
      try {
        body(*mine);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        abort->raise({.outcome = outcome_of(error),
                      .kind = "exception",
                      .origin_rank = rank,
                      .what = error.what(),
                      .hint = {}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

/// The same over a new group of local ranks.
inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
                      CommunicatorOptions options = {}) {
  options.timeout = std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::seconds(30));
  auto abort = std::make_shared<AbortSignal>();
  run_group(make_local_group(ranks, options, abort), abort, body);
}

}  // namespace lockstep::testing_support

namespace lockstep::testing {
using testing_support::run_ranks;
}  // namespace lockstep::testing
