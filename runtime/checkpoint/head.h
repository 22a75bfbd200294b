// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/shard_plan.h"

namespace lockstep {

/// The head of a shard: all of its HDF5 metadata.
struct ShardHead {
  std::string job;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t writer = 0;
  CheckpointMesh mesh;  // zero is not in it
  std::string plan_sha256;
  std::uint64_t head_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::vector<Fragment> fragments;  // in file order
};

/// Bytes of the head for these datasets, whatever their offsets and checksums: a multiple of
/// kHeadUnit.
std::uint64_t head_size(const std::vector<Fragment>& fragments);

/// The finished head. `head_bytes`, offsets and checksums are set. Throws UsageError if the library
/// places a dataset elsewhere than the plan.
std::vector<std::byte> build_head(const ShardHead& head);

/// Reads a head of a shard of `file_bytes` and checks it for itself: layout, types, extents, no
/// overlap. Throws DataError that names the dataset. Only for bytes whose hash is right: the HDF5
/// library is not made for hostile files.
ShardHead parse_head(std::vector<std::byte> bytes, std::uint64_t file_bytes);

}  // namespace lockstep
