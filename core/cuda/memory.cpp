// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/current_device.h"

namespace lockstep::cuda {
namespace {

// Sizes are rounded up to a quarter of a power of two: at most a fifth is lost, and what a smaller
// batch gives back fits a later one.
constexpr std::size_t kSmallest = 512;

std::size_t size_class(std::size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  std::size_t power = kSmallest;
  while (power * 2 < bytes) power *= 2;
  const std::size_t step = power / 4;
  return (bytes + step - 1) / step * step;
}

// Memory of a device that is given back and taken again without a call of the driver, each of which
// would wait for all work of the device.
//
// A block is given out again at once, while work that used it may still be queued: what follows
// comes later in the order of the device's compute stream. Who uses a tensor on another stream
// holds it until that work is done.
class Pool {
 public:
  explicit Pool(Device device) : device_(device) {}

  void* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    auto& blocks = free_[size];
    if (!blocks.empty()) {
      void* const block = blocks.back();
      blocks.pop_back();
      return block;
    }
    const CurrentDevice current(device_, "memory of " + to_string(device_));
    void* block = nullptr;
    if (cudaMalloc(&block, size) == cudaSuccess) return block;
    cudaGetLastError();  // else the next call would give it
    give_back_to_device();
    const cudaError_t status = cudaMalloc(&block, size);
    if (status == cudaSuccess) return block;
    cudaGetLastError();
    std::size_t left = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&left, &total);
    check(status, std::to_string(size) + " bytes of " + to_string(device_) + ", which has " +
                      std::to_string(left) + " of " + std::to_string(total) + " left");
    return nullptr;
  }

  void give(void* block, std::size_t size) {
    const std::lock_guard lock(mutex_);
    free_[size].push_back(block);
  }

 private:
  void give_back_to_device() {
    for (auto& [size, blocks] : free_) {
      for (void* const block : blocks) cudaFree(block);
      blocks.clear();
    }
  }

  Device device_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
};

// A device's memory belongs to the process, whoever asks for it, so its pool does too. Pools are
// never destroyed: the driver may be gone before the last tensor is.
Pool& pool_of(Device device) {
  static std::mutex mutex;
  static auto& pools = *new std::map<Device, Pool>;
  const std::lock_guard lock(mutex);
  return pools.try_emplace(device, device).first->second;
}

}  // namespace

std::shared_ptr<void> device_memory(Device device, std::size_t bytes) {
  Pool& pool = pool_of(device);
  const std::size_t size = size_class(bytes);
  return {pool.take(size), [&pool, size](void* block) { pool.give(block, size); }};
}

std::shared_ptr<void> pinned_memory(Device device, std::size_t bytes) {
  const CurrentDevice current(device, "page-locked memory for " + to_string(device));
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, bytes + 1, cudaHostAllocPortable | cudaHostAllocMapped);
  if (status != cudaSuccess) cudaGetLastError();  // who goes on without must not meet it again
  check(status, std::to_string(bytes) + " bytes of page-locked memory");
  return {data, [](void* memory) { cudaFreeHost(memory); }};
}

void zero(Device device, void* data, std::size_t bytes) {
  const CurrentDevice current(device, "zero memory of " + to_string(device));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  cudaError_t status = cudaMemsetAsync(data, 0, bytes, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(status, "zero " + std::to_string(bytes) + " bytes of " + to_string(device));
}

}  // namespace lockstep::cuda
