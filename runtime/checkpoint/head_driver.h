// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/checkpoint/hdf5.h"

namespace lockstep {

/// The metadata of an HDF5 file in memory, as a virtual file driver sees it.
///
/// A plain HDF5 writer puts metadata between and behind raw data. This driver's `alloc` puts all of
/// it into [0, data_start) and raw data behind, so that every offset is known before a byte of
/// payload moves. Raw data never passes through the library.
struct HeadImage {
  std::vector<std::byte> bytes;  // what lies in the head so far
  std::uint64_t head_end = 0;    // of the metadata that has been placed
  std::uint64_t data_start = 0;  // the head's size
  std::uint64_t file_end = 0;    // of the raw data that has been placed; when reading, file size
  bool growing = false;          // to find the size: the head takes what it needs
};

/// A file access list for `image`, which must outlive the files opened by it. Needs a session.
Hdf5Id head_access(HeadImage& image);

}  // namespace lockstep
