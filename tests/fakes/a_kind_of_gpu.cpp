// SPDX-License-Identifier: Apache-2.0
// As much of the CUDA runtime as cuDNN's frontend asks before a graph is lowered: the compute
// capability of the device, here 10 · major + minor of LOCKSTEP_FAKE_CAPABILITY.
#include <cuda_runtime_api.h>

#include <cstdlib>

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const char* const set = std::getenv("LOCKSTEP_FAKE_CAPABILITY");
  const int capability = set == nullptr ? 0 : std::atoi(set);
  if (attribute == cudaDevAttrComputeCapabilityMajor) {
    *value = capability / 10;
  } else if (attribute == cudaDevAttrComputeCapabilityMinor) {
    *value = capability % 10;
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t) { return "of a device that is none"; }
