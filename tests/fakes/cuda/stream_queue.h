// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

/// What the fake libraries above the runtime need of its streams and memory.
namespace lockstep::fake {

/// Queues `task` behind the work of `stream`; dropped if a kernel has faulted before its turn.
/// Fails for the default streams; dies for one that was destroyed.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> task);

/// Waits for the work queued so far.
void drain_stream(cudaStream_t stream);

/// The device of a live stream; -1 for the default streams.
int device_of(cudaStream_t stream);

/// While held, work given to the stream by anybody else is a mistake: an operation in front of it
/// is not queued yet (NCCL's ncclInProgress). `holder` is for the message; null releases.
void hold(cudaStream_t stream, const char* holder);

/// Dies unless [data, data + bytes) lies in memory that `device` can reach: its own or pinned.
void check_reachable(const char* function, const char* what, int device, const void* data,
                     std::size_t bytes);

/// Waits for all work queued so far on the streams of `device`, -1: of all.
void drain(int device);
/// The same for the streams that the legacy default stream waits for.
void drain_blocking(int device);

/// Dies if memory that was freed has been written since.
void check_freed_memory();

}  // namespace lockstep::fake
