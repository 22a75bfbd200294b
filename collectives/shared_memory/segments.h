// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/shared_memory/space.h"

namespace lockstep::shared_memory {

/// A place in the memory that a rank got from allocate(), the same number in every process.
struct Place {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;  // in that rank's region
};

/// The memory that a group has allocated so far: a region for each rank in every segment.
class Segments {
 public:
  Segments(std::shared_ptr<Space> space, int rank, int size, std::size_t first_offset);

  /// Makes room for a region of `bytes` for each rank. By rank 0, before any rank calls append().
  void extend(std::size_t bytes);
  /// Maps the next segment and returns this rank's region, which keeps the space alive.
  std::shared_ptr<std::byte> append(std::size_t bytes);

  /// Where [data, data + bytes) of this rank is, if it lies in one of its regions.
  std::optional<Place> find(const void* data, std::size_t bytes) const noexcept;
  /// The address here of what `rank` calls `place`.
  std::byte* at(int rank, Place place) const;

 private:
  struct Segment {
    std::byte* base = nullptr;
    std::size_t bytes = 0;   // of one rank's region
    std::size_t stride = 0;  // from one rank's region to the next
  };
  std::size_t segment_bytes(std::size_t bytes) const noexcept;

  std::shared_ptr<Space> space_;
  int rank_;
  int size_;
  std::size_t next_offset_;
  std::vector<Segment> segments_;
};

}  // namespace lockstep::shared_memory
