// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/core/device.h"

namespace lockstep::cuda {

/// The CUDA devices that this process may use: 0 without a driver, and in a build without CUDA.
int device_count();

/// What bits of work on a device depend on: its name with its compute capability, "NVIDIA H200
/// (9.0)", and the library of its matrix products, "cuBLASLt 13.1.0".
std::string device_name(int device);
std::string gemm_library();
/// Whose kernels attention in bf16 uses where they agree with our own (AttentionChoice): "cuDNN
/// 9.15.1", or "own" where there is no library or LOCKSTEP_CUDA_ATTENTION does without. Throws
/// ConfigError for a word that this variable does not know.
std::string attention_library();

/// Throws DeviceError for a device that is not there.
DeviceMemory memory_of(Device device);

/// For a reader: "cuda: …" with the versions of runtime and driver, then a line a device with its
/// name, compute capability and memory; or what is missing and what to do about it. Never throws
/// for that. Without a newline at the end.
std::string device_report();

}  // namespace lockstep::cuda
