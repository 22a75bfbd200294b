// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace lockstep::s3 {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

}  // namespace

PartBuffer::PartBuffer(std::size_t size) : size_(size) {
  const std::size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole)));
  if (!memory_) throw std::bad_alloc();
  // Each part is fresh memory, and most of its cost would be page faults. Only a wish.
  if (size >= kHugePage) madvise(memory_.get(), whole, MADV_HUGEPAGE);
}

void PartBuffer::write(std::size_t offset, std::span<const std::byte> bytes) {
  if (offset > filled_) std::memset(memory_.get() + filled_, 0, offset - filled_);
  std::memcpy(memory_.get() + offset, bytes.data(), bytes.size());
  if (offset + bytes.size() > filled_) filled_ = offset + bytes.size();
}

std::span<const std::byte> PartBuffer::bytes() {
  if (filled_ < size_) std::memset(memory_.get() + filled_, 0, size_ - filled_);
  filled_ = size_;
  return {memory_.get(), size_};
}

}  // namespace lockstep::s3
