// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/device.h"

#include <cuda_runtime_api.h>

#include <cstdio>

#include "core/cuda/check.h"
#include "core/cuda/current_device.h"

namespace lockstep::cuda {
namespace {

// "13.0" of 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// What keeps this process from using any device; empty if nothing does.
std::string obstacle(cudaError_t status, int count, int driver) {
  if (status == cudaErrorInsufficientDriver) {
    const std::string advice = ": install the NVIDIA driver 580 or newer";
    if (driver == 0) return "no driver found" + advice;
    return "the driver is too old (CUDA " + version_text(driver) + ")" + advice;
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    return "no device found: see `nvidia-smi` and CUDA_VISIBLE_DEVICES";
  }
  if (status == cudaSuccess) return {};
  return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status) +
         ": see `nvidia-smi`";
}

std::string describe(int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  std::string line = "\n  cuda:" + std::to_string(device) + ": ";
  if (status != cudaSuccess) return line + cudaGetErrorString(status);
  char memory[32];
  std::snprintf(memory, sizeof memory, "%.1f GiB",
                static_cast<double>(properties.totalGlobalMem) / (1 << 30));
  return line + properties.name + ", compute capability " + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ", " + memory;
}

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // or the next check of a launch would find it
  return 0;
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "name of cuda:" + std::to_string(device));
  return std::string(properties.name) + " (" + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ")";
}

DeviceMemory memory_of(Device device) {
  const std::string what = "memory of " + to_string(device);
  const CurrentDevice current(device, what);
  std::size_t left = 0;
  DeviceMemory memory;
  check(cudaMemGetInfo(&left, &memory.total), what);
  memory.used = memory.total - left;
  return memory;
}

std::string device_report() {
  int count = 0;
  int driver = 0;
  int runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  std::string report = "cuda: runtime " + version_text(runtime) + ", ";
  if (const std::string reason = obstacle(status, count, driver); !reason.empty()) {
    report += reason;
  } else {
    report += "driver for CUDA " + version_text(driver);
    for (int device = 0; device < count; ++device) report += describe(device);
  }
  static_cast<void>(cudaGetLastError());
  return report;
}

}  // namespace lockstep::cuda
