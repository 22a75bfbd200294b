// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/lack.h"

namespace lockstep {
namespace {

// What is written at once, just after its checksum has read it: as much as stays in a core's cache.
constexpr std::uint64_t kPieceBytes = std::uint64_t{512} << 10;
static_assert(kBlockBytes % kPieceBytes == 0);

DamageError damaged(const std::string& key, const std::string& what) {
  return DamageError({.object = key, .dataset = {}, .block = {}, .what = what});
}

void check_head(const ShardHead& head, const Manifest& manifest, const ManifestShard& shard) {
  const bool same = head.job == manifest.job && head.epoch == manifest.epoch &&
                    head.step == manifest.state.step && head.writer == shard.writer &&
                    head.mesh.dp == manifest.mesh.dp && head.mesh.tp == manifest.mesh.tp &&
                    head.plan_sha256 == manifest.plan_sha256;
  if (!same) throw damaged(shard.key, "the shard belongs to another save");
}

ManifestShard write_pieces(ObjectStore& store, const std::string& key, ShardHead& head,
                           const std::vector<const std::byte*>& data,
                           const std::function<void()>& on_block) {
  std::vector<std::byte> bytes;  // of the head; outlives the writer
  const auto writer = store.create(key, head.total_bytes, head.epoch);
  for (std::size_t i = 0; i < head.fragments.size(); ++i) {
    Fragment& fragment = head.fragments[i];
    fragment.crcs.clear();
    for (std::uint64_t done = 0; done < fragment.bytes; done += kPieceBytes) {
      const std::span piece(data[i] + done, std::min(kPieceBytes, fragment.bytes - done));
      if (done % kBlockBytes == 0) {
        if (on_block) on_block();
        fragment.crcs.push_back(0);
      }
      fragment.crcs.back() = crc32c(piece, fragment.crcs.back());
      writer->write(fragment.offset + done, piece);
    }
  }
  bytes = build_head(head);
  if (on_block) on_block();
  writer->write(0, bytes);
  if (on_block) on_block();
  if (writer->commit() == Creation::exists) {
    throw StorageError("shard " + key + " is already there in store " + store.uri(),
                       "another process writes under the same attempt number; stop one of them");
  }
  return {.key = key,
          .size = head.total_bytes,
          .etag = {},
          .head_bytes = head.head_bytes,
          .head_sha256 = to_hex(sha256(bytes)),
          .writer = head.writer,
          .dp = head.writer / head.mesh.tp,
          .tp = head.writer % head.mesh.tp};
}

}  // namespace

ManifestShard write_shard(ObjectStore& store, const std::string& key, ShardHead head,
                          const std::vector<const std::byte*>& data,
                          const std::function<void()>& on_block) {
  return write_with_resources("shard " + key,
                              [&] { return write_pieces(store, key, head, data, on_block); });
}

void check_whole(std::optional<std::size_t> got, std::size_t asked, const SeenObject& object) {
  if (!got) throw damaged(object.key, kMissing);
  if (*got != asked) throw damaged(object.key, "the shard is truncated");
}

HeadBytes read_head_bytes(ObjectStore& store, const ManifestShard& shard) {
  const auto info = store.stat(shard.key);
  if (!info) throw damaged(shard.key, kMissing);
  if (info->size != shard.size) {
    throw damaged(shard.key, "the shard has " + std::to_string(info->size) + " bytes, not " +
                                 std::to_string(shard.size));
  }
  if (shard.head_bytes > shard.size) throw damaged(shard.key, "the head is larger than the shard");
  HeadBytes head{.object = {.key = shard.key, .etag = info->etag}, .bytes = {}};
  head.bytes.resize(shard.head_bytes);
  check_whole(store.read(shard.key, 0, head.bytes, head.object.etag), head.bytes.size(),
              head.object);
  if (to_hex(sha256(head.bytes)) != shard.head_sha256) {
    // A copy of the right bytes has another etag too, so that this alone is no damage.
    const bool replaced = !shard.etag.empty() && info->etag != shard.etag;
    throw damaged(shard.key, replaced ? "it is not the object that was saved: its etag is " +
                                            info->etag + ", not " + shard.etag +
                                            ", and the head's SHA-256 is wrong"
                                      : std::string("the head's SHA-256 is wrong"));
  }
  return head;
}

OpenShard open_shard(HeadBytes bytes, const Manifest& manifest, const ManifestShard& shard) {
  try {
    OpenShard open{.object = std::move(bytes.object),
                   .head = parse_head(std::move(bytes.bytes), shard.size)};
    check_head(open.head, manifest, shard);
    return open;
  } catch (const DamageError&) {
    throw;
  } catch (const DataError& error) {
    throw damaged(shard.key, error.what());
  }
}

OpenShard open_shard(ObjectStore& store, const Manifest& manifest, const ManifestShard& shard) {
  return open_shard(read_head_bytes(store, shard), manifest, shard);
}

void read_fragment(PageReader& store, const SeenObject& object, const Fragment& fragment,
                   const std::vector<CopyRun>& runs, std::byte* target) {
  const std::uint64_t width = size_of(fragment.dtype);
  std::vector<std::byte> block;
  std::size_t next = 0;  // the first run that reaches into this block or beyond it
  for (std::uint64_t index = 0; index < fragment.crcs.size() && next < runs.size(); ++index) {
    const std::uint64_t begin = index * kBlockBytes;
    const std::uint64_t end = std::min(begin + kBlockBytes, fragment.bytes);
    if (runs[next].source * width >= end) continue;
    block.resize(end - begin);
    const auto read = [&] {
      check_whole(store.read(object, fragment.offset + begin, block), block.size(), object);
    };
    read();
    // A second read tells a fault on the way from a fault at rest.
    if (crc32c(block) != fragment.crcs[index]) {
      store.forget();
      read();
      if (crc32c(block) != fragment.crcs[index]) {
        throw DamageError({.object = object.key,
                           .dataset = fragment.path,
                           .block = index,
                           .what = "the block's CRC32C is wrong"});
      }
    }
    for (; next < runs.size(); ++next) {
      const CopyRun& run = runs[next];
      const std::uint64_t run_begin = run.source * width;
      const std::uint64_t run_end = run_begin + run.length * width;
      if (run_begin >= end) break;
      const std::uint64_t from = std::max(run_begin, begin);
      const std::uint64_t to = std::min(run_end, end);
      std::memcpy(target + run.target * width + (from - run_begin), block.data() + (from - begin),
                  to - from);
      if (run_end > end) break;  // goes on in the next block
    }
  }
}

std::vector<Gap> gaps_of(const ShardHead& head) {
  std::vector<Gap> gaps;
  std::uint64_t end = head.head_bytes;
  for (const Fragment& fragment : head.fragments) {
    if (fragment.offset > end) gaps.push_back({.begin = end, .end = fragment.offset});
    end = fragment.offset + fragment.bytes;
  }
  return gaps;
}

}  // namespace lockstep
