// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/host_memory.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

std::shared_ptr<void> cpu_memory(std::size_t bytes) {
  // aligned_alloc wants a multiple of the alignment; an empty tensor still has an address.
  const std::size_t padded = (bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, padded);
  if (data == nullptr) {
    throw DeviceError("no memory for " + std::to_string(padded) + " bytes",
                      "use a smaller model or batch.micro");
  }
  return {data, [](void* memory) { std::free(memory); }};
}

}  // namespace

std::shared_ptr<void> device_memory(Device device, std::size_t bytes) {
  return device.kind == DeviceKind::cpu ? cpu_memory(bytes) : cuda::device_memory(device, bytes);
}

void zero_memory(Device device, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::cpu) {
    std::memset(data, 0, bytes);
  } else {
    cuda::zero(device, data, bytes);
  }
}

std::shared_ptr<void> host_memory(Device device, std::size_t bytes) {
  std::shared_ptr<void> memory =
      device.kind == DeviceKind::cpu ? cpu_memory(bytes) : cuda::pinned_memory(device, bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

}  // namespace lockstep
