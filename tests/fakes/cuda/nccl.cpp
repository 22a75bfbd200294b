// SPDX-License-Identifier: Apache-2.0
// A fake NCCL between threads and processes of one machine: communicators.
#include <nccl.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_communicator.h"
#include "tests/fakes/cuda/nccl_faults.h"
#include "tests/fakes/cuda/nccl_group.h"
#include "tests/fakes/cuda/nccl_segment.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

// Newer than some headers that this is built with.
extern "C" ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;  // what NCCL_CONFIG_INITIALIZER writes

// Those that live. Never destroyed: threads may still run while the process ends.
struct Communicators {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> live;
  std::string last_error;
};
Communicators& communicators() {
  static Communicators& instance = *new Communicators;
  return instance;
}

void add(const std::shared_ptr<ncclComm>& comm) {
  const std::lock_guard lock(communicators().mutex);
  communicators().live[comm.get()] = comm;
}

void remove(ncclComm_t comm) {
  std::shared_ptr<ncclComm> last;  // its end is outside the lock
  const std::lock_guard lock(communicators().mutex);
  const auto found = communicators().live.find(comm);
  if (found == communicators().live.end()) return;
  last = std::move(found->second);
  communicators().live.erase(found);
}

bool blocks(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT) return otherwise;
  return config->blocking != 0;
}

// The common end of what makes a communicator.
ncclResult_t hand_over(const std::shared_ptr<ncclComm>& comm, ncclComm_t* result) {
  *result = comm.get();
  if (fake::defer_to_group_end(comm, result)) return ncclSuccess;
  if (!comm->blocking) return ncclInProgress;
  const ncclResult_t status = comm->wait_while_in_progress();
  if (status != ncclSuccess) {
    *result = nullptr;
    remove(comm.get());
  }
  return status;
}

}  // namespace

namespace lockstep::fake {

std::shared_ptr<ncclComm> live(const char* function, ncclComm_t comm) {
  forbid_on_worker(function);
  if (comm == nullptr) return nullptr;
  const std::lock_guard lock(communicators().mutex);
  const auto found = communicators().live.find(comm);
  if (found == communicators().live.end()) {
    die(std::string(function) + " with a communicator that does not exist any more");
  }
  return found->second;
}

void discard(ncclComm_t comm) { remove(comm); }

std::size_t registered_buffers() {
  std::size_t count = 0;
  const std::lock_guard lock(communicators().mutex);
  for (const auto& [handle, comm] : communicators().live) count += comm->registrations();
  return count;
}

ncclResult_t fail(ncclResult_t result, const std::string& message) {
  const std::lock_guard lock(communicators().mutex);
  communicators().last_error = message;
  return result;
}

}  // namespace lockstep::fake

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  const int pretended = fake::pretended_version();
  *version = pretended != 0 ? pretended : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  fake::forbid_on_worker(__func__);
  if (id == nullptr) return ncclInvalidArgument;
  std::string error;
  return fake::Segment::make(*id, error) ? ncclSuccess : fake::fail(ncclSystemError, error);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (fake::enter(__func__) != cudaSuccess) {
    return fake::fail(ncclUnhandledCudaError, "cuda failure");
  }
  if (result == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return fake::fail(ncclInvalidArgument,
                      "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (config != nullptr && config->magic != kConfigMagic) {
    return fake::fail(ncclInvalidArgument, "the config is without NCCL_CONFIG_INITIALIZER");
  }
  if (ranks > fake::kMostRanks) fake::die("NCCL: more ranks than the fake has room for");
  auto comm = std::make_shared<ncclComm>(rank, ranks, fake::current_device(), blocks(config, true));
  add(comm);
  comm->start([self = comm.get(), id] { self->init(id); });
  return hand_over(comm, result);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* result,
                           ncclConfig_t* config) {
  const auto parent = fake::live(__func__, handle);
  if (!parent || result == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
    return fake::fail(ncclInvalidArgument, "ncclCommSplit");
  }
  if (const ncclResult_t ready = parent->ready_to_split(); ready != ncclSuccess) return ready;
  const std::uint32_t number = parent->begin_split();
  if (color == NCCL_SPLIT_NOCOLOR) {
    *result = nullptr;
    // No child has a thread for it.
    parent->start([parent = parent.get(), number, color, key] {
      ncclComm::split(*parent, nullptr, number, color, key);
    });
    return parent->blocking ? parent->wait_while_in_progress() : ncclInProgress;
  }
  auto child = std::make_shared<ncclComm>(0, 1, parent->device, blocks(config, parent->blocking));
  add(child);
  child->start([parent, child = child.get(), number, color, key] {
    ncclComm::split(*parent, child, number, color, key);
  });
  return hand_over(child, result);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || error == nullptr) return fake::fail(ncclInvalidArgument, "ncclCommGetAsyncError");
  *error = comm->poll();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const auto comm = fake::live(__func__, handle);
  if (!comm) return fake::fail(ncclInvalidArgument, "ncclCommFinalize");
  if (const ncclResult_t ready = comm->ready("ncclCommFinalize"); ready != ncclSuccess)
    return ready;
  comm->begin_finalize();
  comm->start([self = comm.get()] { self->finalize(); });
  return comm->blocking ? comm->wait_while_in_progress() : ncclInProgress;
}

// Waits for this rank's own work: one that hangs needs ncclCommAbort, as with the real one.
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const auto comm = fake::live(__func__, handle);
  if (!comm) return ncclSuccess;
  if (comm->registrations() > 0) {
    fake::die("ncclCommDestroy with " + std::to_string(comm->registrations()) +
              " buffers that are still registered");
  }
  static_cast<void>(comm->flush());
  comm->wait_for_jobs();
  comm->stop(true);
  remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const auto comm = fake::live(__func__, handle);
  if (!comm) return ncclSuccess;
  comm->stop(true);
  remove(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || flags != 0) return fake::fail(ncclInvalidArgument, "ncclCommRevoke");
  if (comm->initialising()) {
    return fake::fail(ncclInvalidArgument, "ncclCommRevoke: the communicator is in progress");
  }
  comm->stop(false);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || count == nullptr || comm->initialising()) return ncclInvalidArgument;
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || rank == nullptr || comm->initialising()) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || device == nullptr) return ncclInvalidArgument;
  *device = comm->device;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  const std::lock_guard lock(communicators().mutex);
  text = communicators().last_error;
  return text.c_str();
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// Registration only makes a real NCCL faster. Here it is watched: what is registered is taken back
// before the communicator is destroyed, and before its memory is freed.
ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, std::size_t bytes,
                              void** registration) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || registration == nullptr) return fake::fail(ncclInvalidArgument, "ncclCommRegister");
  fake::check_reachable(__func__, "buffer", comm->device, data, bytes);
  if (fake::registration_fails()) return fake::fail(ncclSystemError, "ncclCommRegister");
  if (comm->initialising()) return fake::fail(ncclInvalidArgument, "ncclCommRegister: in progress");
  *registration = comm->add_registration(data, bytes);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  const auto comm = fake::live(__func__, handle);
  if (!comm) return ncclInvalidArgument;
  comm->remove_registration(registration);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int) {
  const auto comm = fake::live(__func__, handle);
  if (!comm || window == nullptr) return fake::fail(ncclInvalidArgument, "ncclCommWindowRegister");
  fake::check_reachable(__func__, "buffer", comm->device, data, bytes);
  *window = static_cast<ncclWindow_t>(data);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t) {
  return fake::live(__func__, handle) ? ncclSuccess : ncclInvalidArgument;
}
