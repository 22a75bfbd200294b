// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

namespace lockstep::nccl {

/// Throws what `result` means, "<what>: <its text>: <NCCL's last error>", unless it is success or
/// ncclInProgress: CommError where a peer or the network failed, DeviceError for this rank's GPU,
/// UsageError for a wrong call.
void check(ncclResult_t result, const std::string& what);

}  // namespace lockstep::nccl
