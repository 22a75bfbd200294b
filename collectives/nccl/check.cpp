// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/check.h"

#include "lockstep/core/error.h"

namespace lockstep::nccl {
namespace {

std::string text_of(ncclResult_t result, const std::string& what) {
  std::string text = what + ": " + ncclGetErrorString(result);
  // Of whatever communicator of the process: NCCL keeps one.
  const char* last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0' && text.find(last) == std::string::npos) {
    text += std::string(": ") + last;
  }
  return text;
}

}  // namespace

void check(ncclResult_t result, const std::string& what) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return;
    case ncclRemoteError:
      throw CommError(text_of(result, what), "look at the log of the rank that ended first");
    case ncclSystemError:
      throw CommError(text_of(result, what),
                      "NCCL_DEBUG=INFO shows the call at fault; NCCL_SOCKET_IFNAME chooses the "
                      "network interface");
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      throw UsageError(text_of(result, what),
                       "all ranks must make the same calls; NCCL_DEBUG=WARN says more");
    default:
      throw DeviceError(text_of(result, what),
                        "see `nvidia-smi` and the kernel's log; NCCL_DEBUG=INFO shows the call at "
                        "fault");
  }
}

}  // namespace lockstep::nccl
