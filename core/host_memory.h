// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/core/device.h"

namespace lockstep {

/// Memory of the host that kernels of `device` may read and write: small results, and what work
/// queued later must know. Zero-filled, aligned to 64 bytes; must outlive the work that uses it.
/// Throws DeviceError if there is none.
std::shared_ptr<void> host_memory(Device device, std::size_t bytes);

}  // namespace lockstep
