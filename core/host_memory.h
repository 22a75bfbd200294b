// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/core/device.h"

namespace lockstep {

/// Memory of the host that kernels of `device` read and write under the same address: small
/// results, and what work queued later must know. Zero-filled, aligned to 64 bytes, page-locked for
/// CUDA. It must outlive the work that uses it, and must not be released by a task of a stream,
/// which must not call CUDA. Throws DeviceError if there is none.
std::shared_ptr<void> host_memory(Device device, std::size_t bytes);

}  // namespace lockstep
