// SPDX-License-Identifier: Apache-2.0
#include "collectives/shm/shm_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "collectives/shm/fd_passing.h"
#include "collectives/shm/shm_space.h"

namespace lockstep {
namespace {

using shared_memory::Mailbox;
using shared_memory::SharedMemoryBackend;

// Throws what the lowest failing rank says, if any does; an empty text is success.
void throw_first(const std::vector<std::string>& failures) {
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    throw CommError(
        "rank " + std::to_string(rank) + " of this host cannot share memory: " + failures[rank],
        "backend = mpi works without shared memory", Outcome::failed_elsewhere,
        static_cast<int>(rank));
  }
}

// What `step` says when it throws; empty if it does not.
template <typename Step>
std::string failure_of(const Step& step) {
  try {
    step();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::unique_ptr<shared_memory::SharedMemoryBackend> make_shm_backend(int rank, int size,
                                                                     Exchange& exchange,
                                                                     Wait& wait) {
  std::shared_ptr<ShmSpace> space;
  Listener listener;
  std::string failure = failure_of([&] {
    if (rank != 0) return;
    space = std::make_shared<ShmSpace>(ShmSpace::make_file());
    space->extend(0, Mailbox::bytes(size));
    listener = listen_for_peers(size - 1);
  });
  throw_first(exchange.all_gather(failure));
  const std::string name = exchange.all_gather(listener.name).front();

  std::unique_ptr<SharedMemoryBackend> backend;
  failure = failure_of([&] {
    if (rank == 0) {
      hand_out(listener, space->file(), size - 1, wait);
    } else {
      space = std::make_shared<ShmSpace>(receive_file(name, wait));
    }
    backend = std::make_unique<SharedMemoryBackend>("shm", rank, size, space);
  });
  throw_first(exchange.all_gather(failure));
  return backend;
}

}  // namespace lockstep
