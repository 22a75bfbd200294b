// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/host_memory.h"
#include "core/kernels.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::testing_support {

/// Page-locked memory that is used again and never freed: that would wait for all devices of the
/// process, on which other ranks' threads may have collectives that wait for this one.
class PageLocked {
 public:
  static std::shared_ptr<void> take(Device device, std::size_t bytes) {
    static PageLocked& pool = *new PageLocked;
    const std::lock_guard lock(pool.mutex_);
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    auto& blocks = pool.free_[size];
    if (blocks.empty()) blocks.push_back(host_memory(device, size));
    const auto block = blocks.back();
    blocks.pop_back();
    return {block.get(), [block, size](void*) {
              const std::lock_guard back(pool.mutex_);
              pool.free_[size].push_back(block);
            }};
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::shared_ptr<void>>> free_;
};

/// What kernels of `like`'s device, and the host, read and write.
inline Tensor page_locked(const Tensor& like) {
  const auto memory = PageLocked::take(like.device(), like.bytes());
  return Tensor::borrow(memory.get(), like.shape(), like.dtype(), like.device(), memory);
}

inline void copy_on_device(const Tensor& from, const Tensor& to) {
  Stream stream(to.device());
  kernels::copy(stream, from, to);
  stream.synchronize();
}

/// The elements where the host reads them: `tensor` itself on the CPU, else a copy.
inline Tensor on_host(const Tensor& tensor) {
  if (tensor.device().kind == DeviceKind::cpu) return tensor;
  const Tensor copy = page_locked(tensor);
  copy_on_device(tensor, copy);
  const auto keep = std::make_shared<Tensor>(copy);
  return Tensor::borrow(copy.data(), copy.shape(), copy.dtype(), Device{}, keep);
}

/// Elements of `host` into `tensor`, of the same shape and type.
inline void put(const Tensor& host, const Tensor& tensor) {
  if (host.bytes() == 0 || host.data() == tensor.data()) return;
  const bool on_cpu = tensor.device().kind == DeviceKind::cpu;
  const Tensor reachable = on_cpu ? tensor : page_locked(tensor);
  std::memcpy(reachable.data(), host.data(), host.bytes());
  if (!on_cpu) copy_on_device(reachable, tensor);
}

/// `host` on `device`: itself on the CPU, else a copy.
inline Tensor on_device(Device device, const Tensor& host) {
  if (device.kind == DeviceKind::cpu) return host;
  const Tensor tensor(device, host.shape(), host.dtype());
  put(host, tensor);
  return tensor;
}

}  // namespace lockstep::testing_support
