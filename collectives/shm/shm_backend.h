// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/exchange.h"
#include "collectives/shared_memory/shared_memory_backend.h"
#include "collectives/wait.h"

namespace lockstep {

/// A backend between the processes of one host, over memory that all of them map.
///
/// Collective over the ranks of `exchange`, which is not used after the call. The group's rank 0
/// makes an anonymous file (memfd, so the size of /dev/shm does not matter) and hands it to the
/// others over a Unix socket. Throws CommError, the same cause on every rank, if one of them cannot
/// take part; `wait` bounds the time.
std::unique_ptr<shared_memory::SharedMemoryBackend> make_shm_backend(int rank, int size,
                                                                     Exchange& exchange,
                                                                     Wait& wait);

}  // namespace lockstep
