// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::fake {

/// The pretended machine, read from the environment at the first call:
///   LOCKSTEP_FAKE_GPUS        number of devices (2)
///   LOCKSTEP_FAKE_GPU_MEMORY  bytes of each (4 GiB)
///   LOCKSTEP_FAKE_PINNED      bytes of page-locked memory that a process may have (any number)
///   LOCKSTEP_FAKE_NO_DRIVER   1: as a machine without a driver
///   CUDA_VISIBLE_DEVICES      numbers of devices, as with real ones
struct Machine {
  std::vector<int> devices;  // the number on the machine of each visible device
  std::size_t memory = 0;
  std::size_t pinned = 0;
  bool driver = true;
};
const Machine& machine();

/// The number on the machine, which is the same for every process, of visible device `index`.
int physical_device(int index);

/// The current device of this thread.
int current_device();

/// Where a real GPU would corrupt memory or hang: the message to stderr, then abort() (status 134).
[[noreturn]] void die(const std::string& message);

/// Dies if this thread is inside a host function or a kernel's twin, where CUDA forbids calls.
void forbid_on_worker(const char* function);

/// True while this thread runs what a stream was given by the program under test.
class OnWorker {
 public:
  OnWorker();
  ~OnWorker();
  OnWorker(const OnWorker&) = delete;
  OnWorker& operator=(const OnWorker&) = delete;
};

/// What LOCKSTEP_FAKE_CUDA_FAIL holds, and in tests the same by a call, which also forgets the
/// calls counted so far and a kernel's fault: "cudaMalloc:3,cudaEventQuery:10=700,launch:2" fails
/// the third cudaMalloc with cudaErrorUnknown, the tenth cudaEventQuery with error 700, and lets
/// the second kernel fault: from then on every call fails with cudaErrorIllegalAddress and queued
/// work is dropped. "hang:2" lets the second kernel never end.
void set_cuda_faults(const std::string& list);
bool faulted();
/// Counts a launch; true if this one is to fault. The caller queues fault() in its place.
bool launch_is_to_fault();
bool launch_is_to_hang();
void fault();

/// Counts a call of `function`: success, or the error it has to fail with.
cudaError_t enter(const char* function);
/// Makes `error` this thread's last error unless it is success.
cudaError_t remember(cudaError_t error);

/// The body of every function of the fake runtime.
template <typename Body>
cudaError_t call(const char* function, Body body) {
  if (const cudaError_t refused = enter(function); refused != cudaSuccess) return remember(refused);
  return remember(body());
}

}  // namespace lockstep::fake
