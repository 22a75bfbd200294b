// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/snapshot.h"

#include <new>
#include <optional>
#include <string>

#include "core/copy.h"
#include "core/host_memory.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"

namespace lockstep {

std::vector<Tensor> pieces_of(const ShardHead& head, const StateDict& state) {
  std::vector<Tensor> pieces;
  pieces.reserve(head.fragments.size());
  for (const Fragment& fragment : head.fragments) {
    const StateEntry& entry = state.entries()[fragment.source];
    std::uint64_t first = fragment.flat ? fragment.flat->start : 0;
    if (entry.pieces) first -= static_cast<std::uint64_t>(entry.pieces->begin());
    std::byte* const begin =
        static_cast<std::byte*>(entry.tensor.data()) + first * size_of(entry.tensor.dtype());
    pieces.push_back(Tensor::borrow(begin, {static_cast<std::int64_t>(fragment.bytes)}, DType::u8,
                                    entry.tensor.device()));
  }
  return pieces;
}

std::vector<const std::byte*> addresses_of(const std::vector<Tensor>& pieces) {
  std::vector<const std::byte*> addresses;
  addresses.reserve(pieces.size());
  for (const Tensor& piece : pieces) {
    addresses.push_back(static_cast<const std::byte*>(piece.data()));
  }
  return addresses;
}

void Snapshot::allocate(std::uint64_t bytes, Device device) {
  if (device.kind != DeviceKind::cpu) {
    try {
      const std::shared_ptr<void> pinned = host_memory(device, bytes);
      memory_ = {pinned, static_cast<std::byte*>(pinned.get())};
      return;
    } catch (const DeviceError& error) {
      not_page_locked_ = error.what();
    }
  }
  memory_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
}

void Snapshot::reserve(std::uint64_t bytes, Device device, const MemoryLeft& memory_left) {
  if (bytes <= capacity_ && device == device_) return;
  *this = {};
  const auto lacks = [&](const std::string& left) {
    return StorageError(
        "checkpoint: no memory for a copy of " + std::to_string(bytes) + " bytes" + left,
        "give the job more memory, or set checkpoint.async = false, which copies nothing on the "
        "CPU");
  };
  // An allocation that the machine has no pages for succeeds; the kernel kills who then writes it.
  const auto left = memory_left ? memory_left() : std::nullopt;
  if (left && bytes > *left)
    throw lacks(", this rank's share of its host is " + std::to_string(*left));
  try {
    allocate(bytes, device);
  } catch (const std::bad_alloc&) {
    throw lacks("");
  }
  capacity_ = bytes;
  device_ = device;
}

void Snapshot::take(const std::vector<Tensor>& pieces, const MemoryLeft& memory_left) {
  std::uint64_t size = 0;
  for (const Tensor& piece : pieces) size += piece.bytes();
  const Device device = pieces.empty() ? Device{} : pieces.front().device();
  reserve(size, device, memory_left);
  std::optional<Stream> stream;  // the copies of a device overlap their calls
  if (device.kind != DeviceKind::cpu) stream.emplace(device, "snapshot");
  data_.clear();
  std::byte* next = memory_.get();
  for (const Tensor& piece : pieces) {
    const Tensor copy = Tensor::borrow(next, piece.shape(), DType::u8, Device{});
    if (stream) {
      queue_copy(*stream, piece, copy);
    } else {
      copy_now(piece, copy);
    }
    data_.push_back(next);
    next += piece.bytes();
  }
  if (stream) stream->synchronize();
}

}  // namespace lockstep
