// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/head.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/page_reader.h"
#include "runtime/checkpoint/reshard.h"

namespace lockstep {

/// Writes a shard: payload first, then the head with its checksums. `data[i]` points to the bytes
/// of the fragment i of `head`, whose `head_bytes` and offsets are set. Returns size and hash.
/// `on_block` is called before each write and may throw: then nothing appears.
ManifestShard write_shard(ObjectStore& store, const std::string& key, ShardHead head,
                          const std::vector<const std::byte*>& data,
                          const std::function<void()>& on_block = {});

/// The head of a shard as it lies in the store, and the object that it is of.
struct HeadBytes {
  SeenObject object;
  std::vector<std::byte> bytes;
};

/// A shard whose head was read. All else is to be read of the same object.
struct OpenShard {
  SeenObject object;
  ShardHead head;
};

/// What a DamageError says of an object that is not there.
inline constexpr const char* kMissing = "the shard is missing";

/// That what was read of a shard, whose size has been checked, is all that was asked for. Throws
/// DamageError.
void check_whole(std::optional<std::size_t> got, std::size_t asked, const SeenObject& object);

/// Reads the head and checks its hash. Throws DamageError.
HeadBytes read_head_bytes(ObjectStore& store, const ManifestShard& shard);
/// Parses it and compares it with the manifest. Throws DamageError.
OpenShard open_shard(HeadBytes bytes, const Manifest& manifest, const ManifestShard& shard);
/// Both.
OpenShard open_shard(ObjectStore& store, const Manifest& manifest, const ManifestShard& shard);

/// Reads the blocks of `fragment` that `runs` need, checks each, and copies the runs to `target`.
/// Throws DamageError that names the block.
void read_fragment(PageReader& store, const SeenObject& object, const Fragment& fragment,
                   const std::vector<CopyRun>& runs, std::byte* target);

/// Bytes [begin, end) of the shard that no dataset holds.
struct Gap {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
std::vector<Gap> gaps_of(const ShardHead& head);

}  // namespace lockstep
