// SPDX-License-Identifier: Apache-2.0
// Memory of the fake runtime. "Device" memory is the host's at an address where the host finds
// nothing (device_view.h): 0xFB when new, so that nothing lives on zeros that happen to be there,
// and 0xFD after cudaFree, kept for a while, so that a late write is found.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/fakes/cuda/device_view.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

namespace {

constexpr unsigned char kNew = 0xFB;
constexpr unsigned char kFreed = 0xFD;
constexpr std::size_t kQuarantine = std::size_t{64} << 20U;  // bytes of freed memory that are kept
constexpr std::size_t kAlignment = 512;                      // as cudaMalloc's
constexpr std::size_t kPage = 4096;                          // of large blocks

enum class Kind { device, pinned, registered };
struct Block {
  std::size_t bytes = 0;
  Kind kind = Kind::device;
  int device = 0;
};

struct Freed {
  unsigned char* data;
  std::size_t bytes;
  Kind kind;
};

// A block and where in it an address lies.
struct Place {
  Block block;
  std::size_t offset = 0;
  bool has(std::size_t bytes) const { return bytes <= block.bytes - offset; }
};

class Memory {
 public:
  void add(void* data, const Block& block) {
    const std::lock_guard lock(mutex_);
    if (block.kind == Kind::device) used_[block.device] += block.bytes;
    if (block.kind == Kind::pinned) pinned_ += block.bytes;
    blocks_[reinterpret_cast<std::uintptr_t>(data)] = block;
  }

  // The block that begins at `data`, taken out.
  std::optional<Block> remove(void* data, bool registered) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == blocks_.end() || (found->second.kind == Kind::registered) != registered) return {};
    const Block block = found->second;
    if (block.kind == Kind::device) used_[block.device] -= block.bytes;
    if (block.kind == Kind::pinned) pinned_ -= block.bytes;
    blocks_.erase(found);
    return block;
  }

  std::optional<Place> find(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return {};
    --after;
    const std::size_t offset = address - after->first;
    if (offset >= after->second.bytes) return {};
    return Place{.block = after->second, .offset = offset};
  }

  std::size_t used(int device) {
    const std::lock_guard lock(mutex_);
    return used_[device];
  }

  std::size_t pinned() {
    const std::lock_guard lock(mutex_);
    return pinned_;
  }

  void quarantine(void* data, const Block& block) {
    std::memset(fake::view(data), kFreed, block.bytes);
    const std::lock_guard lock(mutex_);
    freed_.push_back({static_cast<unsigned char*>(data), block.bytes, block.kind});
    freed_bytes_ += block.bytes;
    while (freed_bytes_ > kQuarantine) {
      check(freed_.front());
      release(freed_.front());
      freed_bytes_ -= freed_.front().bytes;
      freed_.pop_front();
    }
  }

  void check_all() {
    const std::lock_guard lock(mutex_);
    for (const Freed& freed : freed_) check(freed);
  }

 private:
  static void release(const Freed& freed) {
    if (freed.kind == Kind::device) {
      fake::release_device_memory(freed.data, freed.bytes);
    } else {
      std::free(freed.data);
    }
  }

  static void check(const Freed& freed) {
    const unsigned char* const data = fake::view(freed.data);
    const unsigned char* end = data + freed.bytes;
    const unsigned char* bad = std::find_if(data, end, [](auto c) { return c != kFreed; });
    if (bad == end) return;
    fake::die("byte " + std::to_string(bad - data) + " of " + std::to_string(freed.bytes) +
              " was written after cudaFree");
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<int, std::size_t> used_;
  std::size_t pinned_ = 0;
  std::deque<Freed> freed_;
  std::size_t freed_bytes_ = 0;
};

// Never destroyed: workers may still run while the process ends.
Memory& memory() {
  static Memory& instance = []() -> Memory& {
    std::atexit(fake::check_freed_memory);
    return *new Memory;
  }();
  return instance;
}

void* allocate(std::size_t bytes, Kind kind) {
  const std::size_t alignment = bytes < kPage ? kAlignment : kPage;
  void* const data =
      kind == Kind::device
          ? fake::reserve_device_memory(bytes, kAlignment)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data != nullptr) std::memset(fake::view(data), kNew, bytes);
  return data;
}

enum class Side { device, host };
const char* name_of(Side side) { return side == Side::device ? "device" : "host"; }

// Dies unless the bytes are where the call says. Pageable memory of the host cannot be checked.
void check_side(const char* function, const char* what, const void* data, std::size_t bytes,
                Side side) {
  const auto place = memory().find(data);
  const std::string name =
      std::string(function) + ": the " + what + " of " + std::to_string(bytes) + " bytes";
  if (!place) {
    if (side == Side::device) fake::die(name + " is in no allocated device memory");
    return;
  }
  if ((place->block.kind == Kind::device) != (side == Side::device)) {
    fake::die(name + " is not memory of the " + name_of(side) + ", which the call says");
  }
  if (!place->has(bytes)) {
    fake::die(name + " begins at byte " + std::to_string(place->offset) + " of a block of " +
              std::to_string(place->block.bytes));
  }
}

Side side_of(const void* data) {
  const auto place = memory().find(data);
  return place && place->block.kind == Kind::device ? Side::device : Side::host;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  Side to_side;
  Side from_side;

  void check(const char* function) const {
    check_side(function, "destination", to, bytes, to_side);
    check_side(function, "source", from, bytes, from_side);
  }
  bool pageable(const void* data, Side side) const {
    return side == Side::host && !memory().find(data);
  }
};

Copy make_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool guess = kind == cudaMemcpyDefault;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return {.to = to,
          .from = from,
          .bytes = bytes,
          .to_side = guess ? side_of(to) : (to_device ? Side::device : Side::host),
          .from_side = guess ? side_of(from) : (from_device ? Side::device : Side::host)};
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

cudaError_t allocate_pinned(void** data, std::size_t bytes) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::size_t limit = fake::machine().pinned;
  if (bytes > limit || memory().pinned() > limit - bytes) return cudaErrorMemoryAllocation;
  void* const block = allocate(bytes, Kind::pinned);
  if (block == nullptr) return cudaErrorMemoryAllocation;
  memory().add(block, {.bytes = bytes, .kind = Kind::pinned, .device = fake::current_device()});
  *data = block;
  return cudaSuccess;
}

}  // namespace

namespace lockstep::fake {

void check_reachable(const char* function, const char* what, int device, const void* data,
                     std::size_t bytes) {
  if (bytes == 0) return;
  const auto place = memory().find(data);
  const std::string name =
      std::string(function) + ": " + what + " of " + std::to_string(bytes) + " bytes";
  if (!place) die(name + " is in no memory that a device can reach");
  if (!place->has(bytes)) {
    die(name + " begins at byte " + std::to_string(place->offset) + " of a block of " +
        std::to_string(place->block.bytes));
  }
  if (place->block.kind == Kind::device && place->block.device != device) {
    die(name + " is on device " + std::to_string(place->block.device) + ", the stream on " +
        std::to_string(device));
  }
}

void check_freed_memory() { memory().check_all(); }

}  // namespace lockstep::fake

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return fake::call(__func__, [&] {
    if (data == nullptr) return cudaErrorInvalidValue;
    *data = nullptr;
    if (bytes == 0) return cudaSuccess;
    const int device = fake::current_device();
    if (bytes > fake::machine().memory || memory().used(device) > fake::machine().memory - bytes) {
      return cudaErrorMemoryAllocation;
    }
    void* const block = allocate(bytes, Kind::device);
    if (block == nullptr) return cudaErrorMemoryAllocation;
    memory().add(block, {.bytes = bytes, .kind = Kind::device, .device = device});
    *data = block;
    return cudaSuccess;
  });
}

// Waits for the device, as a real one does.
cudaError_t cudaFree(void* data) {
  return fake::call(__func__, [&] {
    if (data == nullptr) return cudaSuccess;
    const auto place = memory().find(data);
    if (!place || place->offset != 0 || place->block.kind != Kind::device) {
      return cudaErrorInvalidValue;
    }
    fake::drain(place->block.device);
    const auto block = memory().remove(data, false);
    if (!block) return cudaErrorInvalidValue;
    memory().quarantine(data, *block);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return fake::call(__func__, [&] { return allocate_pinned(data, bytes); });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return fake::call(__func__, [&] { return allocate_pinned(data, bytes); });
}

cudaError_t cudaFreeHost(void* data) {
  return fake::call(__func__, [&] {
    if (data == nullptr) return cudaSuccess;
    const auto place = memory().find(data);
    if (!place || place->offset != 0 || place->block.kind != Kind::pinned) {
      return cudaErrorInvalidValue;
    }
    fake::drain(-1);
    const auto block = memory().remove(data, false);
    if (!block) return cudaErrorInvalidValue;
    memory().quarantine(data, *block);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  return fake::call(__func__, [&] {
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (memory().find(data)) return cudaErrorHostMemoryAlreadyRegistered;
    memory().add(data,
                 {.bytes = bytes, .kind = Kind::registered, .device = fake::current_device()});
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return fake::call(__func__, [&] {
    fake::drain(-1);
    return memory().remove(data, true) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return fake::call(__func__, [&] {
    const auto place = memory().find(host);
    if (device == nullptr || !place || place->block.kind == Kind::device) {
      return cudaErrorInvalidValue;
    }
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return fake::call(__func__, [&] {
    if (!is_kind(kind)) return cudaErrorInvalidValue;
    if (fake::device_of(stream) < 0) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const Copy copy = make_copy(to, from, bytes, kind);
    copy.check("cudaMemcpyAsync");
    // Pageable memory is not read or written behind the caller's back: a source is staged before
    // the call returns, a destination is waited for.
    if (copy.pageable(from, copy.from_side)) {
      const auto* first = static_cast<const unsigned char*>(from);
      auto staged = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
      return fake::enqueue(stream, [copy, staged] {
        check_side("cudaMemcpyAsync", "destination", copy.to, copy.bytes, copy.to_side);
        std::memcpy(fake::view(copy.to), staged->data(), copy.bytes);
      });
    }
    const cudaError_t queued = fake::enqueue(stream, [copy] {
      copy.check("cudaMemcpyAsync");  // its memory may have been freed by now
      std::memmove(fake::view(copy.to), fake::device_view(copy.from), copy.bytes);
    });
    if (queued == cudaSuccess && copy.pageable(to, copy.to_side)) {
      fake::drain_stream(stream);
    }
    return queued;
  });
}

// In the order of the legacy default stream: behind the blocking streams, beside the others.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return fake::call(__func__, [&] {
    if (!is_kind(kind)) return cudaErrorInvalidValue;
    if (bytes == 0) return cudaSuccess;
    const Copy copy = make_copy(to, from, bytes, kind);
    copy.check("cudaMemcpy");
    fake::drain_blocking(fake::current_device());
    std::memmove(fake::view(to), fake::device_view(from), bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return fake::call(__func__, [&] {
    const int device = fake::device_of(stream);
    if (device < 0) return cudaErrorInvalidResourceHandle;
    fake::check_reachable("cudaMemsetAsync", "memory", device, data, bytes);
    return fake::enqueue(stream, [data, value, bytes, device] {
      fake::check_reachable("cudaMemsetAsync", "memory", device, data, bytes);
      if (bytes != 0) std::memset(fake::view(data), value, bytes);
    });
  });
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return fake::call(__func__, [&] {
    const int device = fake::current_device();
    fake::check_reachable("cudaMemset", "memory", device, data, bytes);
    fake::drain_blocking(device);
    if (bytes != 0) std::memset(fake::view(data), value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return fake::call(__func__, [&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *total = fake::machine().memory;
    *free = *total - memory().used(fake::current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return fake::call(__func__, [&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    const auto place = memory().find(data);
    auto* const address = const_cast<void*>(data);
    if (!place) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;  // "no device", as the runtime says it
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    const bool device = place->block.kind == Kind::device;
    attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = place->block.device;
    attributes->devicePointer = address;
    attributes->hostPointer = device ? nullptr : address;
    return cudaSuccess;
  });
}
