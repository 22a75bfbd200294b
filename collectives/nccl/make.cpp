// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group find together.
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/nccl/check.h"
#include "collectives/nccl/group_backend.h"
#include "collectives/nccl/nccl_backend.h"
#include "collectives/nccl/place.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// An id, or why there is none: rank 0 says it to all, so that all throw the same.
struct Invitation {
  ncclUniqueId id{};
  ncclResult_t failure = ncclSuccess;
};

std::string encode(const Invitation& invitation) {
  return {reinterpret_cast<const char*>(&invitation), sizeof invitation};
}

Invitation decode(const std::string& text) {
  Invitation invitation;
  std::memcpy(&invitation, text.data(), std::min(text.size(), sizeof invitation));
  return invitation;
}

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const std::vector<int>& job_ranks, int rank,
                                           Device device, Exchange& exchange, Wait& wait) {
  std::vector<nccl::Place> places;
  for (const std::string& text : exchange.all_gather(nccl::encode(nccl::own_place(device)))) {
    places.push_back(nccl::decode(text));
  }
  nccl::check_places(job_ranks, places);

  Invitation invitation;
  if (rank == 0) invitation.failure = ncclGetUniqueId(&invitation.id);
  invitation = decode(exchange.all_gather(rank == 0 ? encode(invitation) : std::string()).front());
  nccl::check(invitation.failure, wait.operation() + ": rank " + std::to_string(job_ranks.front()) +
                                      ": ncclGetUniqueId");
  return std::make_unique<nccl::GroupBackend>(rank, static_cast<int>(job_ranks.size()), device,
                                              invitation.id, wait);
}

}  // namespace lockstep
