// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl/nccl_backend.h"
#include "tests/support/shm_ranks.h"

namespace lockstep::testing_support {

/// What make_nccl_backend gives or throws on each rank, with ranks as threads; rank r is on
/// `devices[r]`.
struct NcclRank {
  std::unique_ptr<Backend> backend;
  std::exception_ptr failure;
};
inline std::vector<NcclRank> make_nccl_ranks(const std::vector<int>& devices,
                                             const AbortSignal& abort,
                                             std::chrono::milliseconds limit) {
  const int ranks = static_cast<int>(devices.size());
  std::vector<int> numbers(devices.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  ThreadExchange::Board board;
  std::vector<NcclRank> made(devices.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      try {
        ThreadExchange exchange(rank, ranks, board);
        Wait wait(abort, std::chrono::steady_clock::now() + limit,
                  "rank " + std::to_string(rank) + ": make group gpus");
        const Device device{.kind = DeviceKind::cuda, .index = devices[own]};
        made[own].backend = make_nccl_backend(numbers, rank, device, exchange, wait);
      } catch (...) {
        made[own].failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return made;
}

/// A group of threads with a GPU each.
inline std::vector<std::unique_ptr<Communicator>> make_nccl_group(
    int ranks, const CommunicatorOptions& options, const std::shared_ptr<AbortSignal>& abort) {
  std::vector<int> devices(static_cast<std::size_t>(ranks));
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<std::unique_ptr<Communicator>> group;
  for (NcclRank& rank : make_nccl_ranks(devices, *abort, std::chrono::seconds(30))) {
    if (rank.failure) std::rethrow_exception(rank.failure);
    group.push_back(std::make_unique<Communicator>(
        std::move(rank.backend), std::make_shared<CommunicationThread>("comm"), abort, options));
  }
  return group;
}

}  // namespace lockstep::testing_support
