// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where tensors live and kernels run.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;  // NOLINT(modernize-use-nullptr): 0 of <=>
};

/// "cpu" or "cuda".
const char* to_string(DeviceKind kind) noexcept;

/// "cpu" or "cuda:0".
std::string to_string(Device device);

/// Reads "cpu", "cuda" or "cuda:N". Throws ConfigError for anything else.
Device parse_device(const std::string& text);

/// Throws ConfigError unless this process may use `device`.
void require_device(Device device);

/// Bytes of a cuda device that are taken, by all processes and the driver, and all that it has.
struct DeviceMemory {
  std::size_t used = 0;
  std::size_t total = 0;
};
/// Throws DeviceError where `device` is none of CUDA or not there.
DeviceMemory memory_of(Device device);

/// What this process sees of CUDA, for a reader: "cuda: not built in …", "cuda: … no driver found
/// …", or versions and a line a device. Never throws for what is missing.
std::string cuda_report();

}  // namespace lockstep
