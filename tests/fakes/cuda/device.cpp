// SPDX-License-Identifier: Apache-2.0
// What the fake runtime says about devices: those of a small H100.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

namespace {

constexpr int kSharedPerBlock = 48 * 1024;
constexpr int kSharedPerBlockOptIn = 227 * 1024;
constexpr int kSharedPerMultiprocessor = 228 * 1024;
constexpr int kMultiprocessors = 132;
constexpr int kRegisters = 65536;
constexpr int kL2Bytes = 50 << 20;

bool is_device(int device) {
  return device >= 0 && device < static_cast<int>(fake::machine().devices.size());
}

// As real ones: bus 0 is the host's own.
int bus_of(int device) { return fake::physical_device(device) + 1; }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return fake::call(__func__, [&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = static_cast<int>(fake::machine().devices.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return fake::call(__func__, [&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp p{};
    std::snprintf(p.name, sizeof p.name, "Lockstep fake GPU");
    std::memcpy(p.uuid.bytes, "lockstep-fake-00", sizeof p.uuid.bytes);
    p.uuid.bytes[15] = static_cast<char>(fake::physical_device(device));
    p.totalGlobalMem = fake::machine().memory;
    p.sharedMemPerBlock = kSharedPerBlock;
    p.sharedMemPerBlockOptin = kSharedPerBlockOptIn;
    p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    p.regsPerBlock = kRegisters;
    p.regsPerMultiprocessor = kRegisters;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 2147483647;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = 9;
    p.minor = 0;
    p.multiProcessorCount = kMultiprocessors;
    p.canMapHostMemory = 1;
    p.concurrentKernels = 1;
    p.ECCEnabled = 1;
    p.pciBusID = bus_of(device);
    p.asyncEngineCount = 3;
    p.unifiedAddressing = 1;
    p.memoryBusWidth = 5120;
    p.l2CacheSize = kL2Bytes;
    p.streamPrioritiesSupported = 1;
    p.hostRegisterSupported = 1;
    *properties = p;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return fake::call(__func__, [&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = kMultiprocessors;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY:
        *value = 1024;
        break;
      case cudaDevAttrMaxBlockDimZ:
        *value = 64;
        break;
      case cudaDevAttrMaxGridDimX:
        *value = 2147483647;
        break;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        *value = 65535;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = 32;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedPerBlock;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kSharedPerBlockOptIn;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = kSharedPerMultiprocessor;
        break;
      case cudaDevAttrMaxRegistersPerBlock:
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = kRegisters;
        break;
      case cudaDevAttrL2CacheSize:
        *value = kL2Bytes;
        break;
      case cudaDevAttrPciBusId:
        *value = bus_of(device);
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        break;
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrEccEnabled:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrStreamPrioritiesSupported:
      case cudaDevAttrHostRegisterSupported:
        *value = 1;
        break;
      default:
        *value = 0;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return fake::call(__func__, [&] {
    if (id == nullptr || length < 13) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(bus_of(device)));
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return fake::call(__func__, [&] {
    if (device == nullptr || id == nullptr) return cudaErrorInvalidValue;
    unsigned domain = 0;
    unsigned bus = 0;
    if (std::sscanf(id, "%x:%x", &domain, &bus) != 2) return cudaErrorInvalidValue;
    for (int i = 0; is_device(i); ++i) {
      if (bus_of(i) == static_cast<int>(bus)) {
        *device = i;
        return cudaSuccess;
      }
    }
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return fake::call(__func__, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return fake::call(__func__, [&] {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return fake::call(__func__, [] {
    fake::drain(fake::current_device());
    return fake::faulted() ? cudaErrorIllegalAddress : cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return fake::call(__func__, [] { return cudaSuccess; });
}

// Without a driver: success and version 0.
cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = fake::machine().driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Kernels are twins on the host here; what the host asks of them it gets from these two.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return fake::call(__func__, [&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->maxDynamicSharedSizeBytes = kSharedPerBlock;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  return fake::call(__func__, [&] {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > kSharedPerBlockOptIn) {
      return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}
