// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/device.h"

#include <charconv>

#include "core/cuda/device.h"
#include "lockstep/core/error.h"

namespace lockstep {

const char* to_string(DeviceKind kind) noexcept { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

std::string to_string(Device device) {
  const std::string kind = to_string(device.kind);
  return device.kind == DeviceKind::cpu ? kind : kind + ":" + std::to_string(device.index);
}

Device parse_device(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {.kind = DeviceKind::cuda, .index = 0};
  if (text.starts_with("cuda:")) {
    Device device{.kind = DeviceKind::cuda, .index = 0};
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data() + 5, end, device.index);
    if (code == std::errc{} && stop == end && device.index >= 0) return device;
  }
  throw ConfigError("device \"" + text + "\" is unknown", "use cpu, cuda or cuda:N");
}

void require_device(Device device) {
  if (device.kind == DeviceKind::cpu || device.index < cuda::device_count()) return;
  throw ConfigError("device = " + to_string(device) + " is not there",
                    "use device = cpu, or see what is missing: " + cuda::device_report());
}

DeviceMemory memory_of(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda::memory_of(device);
  throw DeviceError("cpu has no memory of its own", "ask for that of a cuda device");
}

std::string cuda_report() { return cuda::device_report(); }

}  // namespace lockstep
