// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/local_group.h"

#include <string>
#include <utility>

#include "collectives/communication_thread.h"
#include "collectives/local/local_space.h"
#include "collectives/shared_memory/shared_memory_backend.h"

namespace lockstep {

std::vector<std::unique_ptr<Backend>> make_local_backends(int ranks) {
  auto space = std::make_shared<LocalSpace>();
  space->extend(0, shared_memory::Mailbox::bytes(ranks));
  std::vector<std::unique_ptr<Backend>> backends;
  backends.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    backends.push_back(
        std::make_unique<shared_memory::SharedMemoryBackend>("local", rank, ranks, space));
  }
  return backends;
}

std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks,
                                                            const CommunicatorOptions& options,
                                                            std::shared_ptr<AbortSignal> abort) {
  if (!abort) abort = std::make_shared<AbortSignal>();
  std::vector<std::unique_ptr<Communicator>> group;
  for (auto& backend : make_local_backends(ranks)) {
    auto thread = std::make_shared<CommunicationThread>("comm " + std::to_string(backend->rank()));
    group.push_back(
        std::make_unique<Communicator>(std::move(backend), std::move(thread), abort, options));
  }
  return group;
}

}  // namespace lockstep
