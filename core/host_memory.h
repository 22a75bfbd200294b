// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/core/device.h"

namespace lockstep {

/// Zero-filled memory of the host, aligned to 64 bytes: for cuda pinned, and read and written by
/// the device under the same address; plain memory for cpu. Not to be released from a task of a
/// stream: that may call CUDA. Throws DeviceError if there is none.
std::shared_ptr<void> host_memory(Device device, std::size_t bytes);

}  // namespace lockstep
