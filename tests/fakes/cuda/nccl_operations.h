// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakes/cuda/nccl_communicator.h"

/// How the operations move data; all on a stream's worker. They end early when the communicator
/// stops.
namespace lockstep::fake {

enum class Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast };

struct Collective {
  Kind kind = Kind::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // elements, as the NCCL function counts them
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;

  /// Dies unless the buffers are on the communicator's device and long enough.
  void check(const ncclComm& comm) const;
};
std::string name_of(Kind kind);
void run_collective(ncclComm& comm, const Collective& collective);

/// One ncclSend or ncclRecv. Those of a group go on side by side.
struct Message {
  bool sends = false;
  void* data = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = 0;

  void check(const ncclComm& comm) const;
};
void run_messages(ncclComm& comm, const std::vector<Message>& messages);

/// What an injected fault does instead of an operation: nothing, until the communicator is stopped.
void hang(ncclComm& comm);

}  // namespace lockstep::fake
