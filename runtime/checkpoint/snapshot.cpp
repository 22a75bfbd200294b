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

void Snapshot::reserve(std::uint64_t bytes, Device device) {
  if (bytes <= capacity_ && device == device_) return;
  memory_.reset();
  capacity_ = 0;
  try {
    if (device.kind == DeviceKind::cpu) {
      memory_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
    } else {
      const std::shared_ptr<void> pinned = host_memory(device, bytes);
      memory_ = {pinned, static_cast<std::byte*>(pinned.get())};
    }
  } catch (const std::exception&) {
    throw StorageError("checkpoint: no memory for a copy of " + std::to_string(bytes) + " bytes",
                       "set checkpoint.async = false, which copies nothing on the CPU");
  }
  capacity_ = bytes;
  device_ = device;
}

void Snapshot::take(const std::vector<Tensor>& pieces) {
  std::uint64_t size = 0;
  for (const Tensor& piece : pieces) size += piece.bytes();
  const Device device = pieces.empty() ? Device{} : pieces.front().device();
  reserve(size, device);
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
