// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/communicator_handle.h"

#include <cuda_runtime_api.h>

#include <exception>
#include <string>

#include "collectives/nccl/check.h"
#include "core/cuda/current_device.h"
#include "lockstep/core/error.h"

namespace lockstep::nccl {

void CommunicatorHandle::join(const ncclUniqueId& id, int size, int rank, Wait& wait) {
  constexpr const char* doing = "connect over NCCL";
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t state = ncclSuccess;
  {
    const cuda::CurrentDevice current(device_, doing);
    state = ncclCommInitRankConfig(&handle_, size, id, rank, &config);
  }
  try {
    check(state, wait.operation() + ": " + doing);
    while (!ready(wait, doing)) wait.step();
  } catch (const TimeoutError& error) {
    end(Ending::abort);
    throw TimeoutError(std::string(error.what()) + ": not all ranks have connected over NCCL",
                       "look for a rank whose log ends here; NCCL_DEBUG=INFO shows what it tries, "
                       "NCCL_SOCKET_IFNAME chooses the network interface");
  } catch (const UsageError& error) {
    // The calls are ours and right: what NCCL refuses is how the ranks were placed.
    end(Ending::abort);
    throw ConfigError(error.what(), "give each rank a GPU of its own; NCCL_DEBUG=WARN says more");
  } catch (...) {
    end(Ending::abort);
    throw;
  }
}

bool CommunicatorHandle::ready(const Wait& wait, const char* call) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
  if (asked == ncclSuccess && state == ncclSuccess) return true;
  if (asked == ncclSuccess && state == ncclInProgress) return false;
  const std::string what = wait.operation() + ": " + call;
  check(asked, what);
  check(state, what);
  return true;
}

void CommunicatorHandle::end(Ending how) noexcept {
  if (handle_ == nullptr || ended_) return;
  ended_ = true;
  try {
    ender_ = std::make_unique<std::thread>([handle = handle_, device = device_, how, over = over_,
                                            registered = registrations_.take_all()]() mutable {
      // Failures are of no interest any more.
      static_cast<void>(cudaSetDevice(device.index));
      if (how == Ending::abort) {
        static_cast<void>(ncclCommAbort(handle));
      } else {
        for (const Registrations::Registration& one : registered) {
          static_cast<void>(ncclCommDeregister(handle, one.handle));
        }
        static_cast<void>(ncclCommDestroy(handle));
      }
      registered.clear();  // its memory
      over.reach();
    });
  } catch (const std::exception&) {
    // Without a thread it stays as it is, and gone_within() does not come true.
  }
}

CommunicatorHandle::~CommunicatorHandle() {
  end(Ending::destroy);
  if (!ender_) return;
  if (over_.done()) {
    ender_->join();
  } else {
    static_cast<void>(ender_.release());  // it may hang for good
  }
}

bool CommunicatorHandle::gone_within(std::chrono::milliseconds limit) const {
  return handle_ == nullptr || over_.wait_for(limit);
}

}  // namespace lockstep::nccl
