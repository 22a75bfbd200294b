// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/checkpoint/shard.h"

namespace lockstep {
namespace {

class Verifier {
 public:
  explicit Verifier(ObjectStore& store) : store_(store), pages_(store) {}

  VerifyReport run() {
    const LogView view = read_log(store_);
    report_.records = view.next_seq();
    report_.damages = view.damages();
    for (const Commit& commit : view.commits()) {
      if (commit.status != CommitStatus::live) continue;
      ++report_.commits;
      try_to([&] { check_commit(read_manifest(store_, view, commit)); });
    }
    return std::move(report_);
  }

 private:
  template <typename Action>
  void try_to(const Action& action) {
    try {
      action();
    } catch (const DamageError& error) {
      report_.damages.push_back(error.damage());
    }
  }

  void check_commit(const Manifest& manifest) {
    std::vector<std::vector<Fragment>> shards;
    for (const ManifestShard& shard : manifest.shards) {
      ++report_.shards;
      try_to([&] {
        const OpenShard open = open_shard(store_, manifest, shard);
        report_.bytes += shard.size;
        for (const Fragment& fragment : open.head.fragments) check_payload(open.object, fragment);
        for (const Gap& gap : gaps_of(open.head)) check_gap(open.object, gap);
        shards.push_back(open.head.fragments);
      });
    }
    // What spans the shards can be told only if all heads could be read.
    if (shards.size() != manifest.shards.size()) return;
    const std::string& first = manifest.shards.empty() ? kNoShard : manifest.shards.front().key;
    if (plan_sha256(manifest.mesh, shards) != manifest.plan_sha256) {
      report_.damages.push_back({.object = first,
                                 .dataset = {},
                                 .block = {},
                                 .what = "the shards do not make up the plan of the manifest"});
    }
    check_cover(manifest, shards, first);
  }

  void check_payload(const SeenObject& object, const Fragment& fragment) {
    std::vector<std::byte> block;
    for (std::uint64_t index = 0; index < fragment.crcs.size(); ++index) {
      const std::uint64_t begin = index * kBlockBytes;
      block.resize(std::min(kBlockBytes, fragment.bytes - begin));
      const auto is_whole = [&] {
        const auto got = pages_.read(object, fragment.offset + begin, block);
        return got == block.size() && crc32c(block) == fragment.crcs[index];
      };
      if (is_whole()) continue;
      pages_.forget();  // a second read tells a fault on the way from a fault at rest
      if (is_whole()) continue;
      report_.damages.push_back({.object = object.key,
                                 .dataset = fragment.path,
                                 .block = index,
                                 .what = "the block's CRC32C is wrong"});
    }
  }

  void check_gap(const SeenObject& object, const Gap& gap) {
    std::vector<std::byte> bytes(gap.end - gap.begin);
    const auto got = pages_.read(object, gap.begin, bytes);
    const bool zero = got == bytes.size() && std::all_of(bytes.begin(), bytes.end(), [](auto byte) {
                        return byte == std::byte{0};
                      });
    if (zero) return;
    report_.damages.push_back({.object = object.key,
                               .dataset = {},
                               .block = {},
                               .what = "bytes " + std::to_string(gap.begin) + " to " +
                                       std::to_string(gap.end - 1) +
                                       " between datasets are not zero"});
  }

  void check_cover(const Manifest& manifest, const std::vector<std::vector<Fragment>>& shards,
                   const std::string& first) {
    std::map<std::string, std::vector<const Fragment*>, std::less<>> parts;
    for (const auto& fragments : shards) {
      for (const Fragment& fragment : fragments) {
        if (fragment.replica.value_or(0) == 0) {
          parts[std::string(without_run(fragment.path))].push_back(&fragment);
        }
      }
    }
    for (const TensorLine& tensor : manifest.tensors) {
      const Box box = whole_box(unsigned_shape(tensor.shape));
      for (const StateKind kind : tensor.kinds) {
        const std::string path = dataset_path(to_string(kind), tensor.name, 0);
        std::vector<CopyRun> cover;
        for (const Fragment* fragment : parts[path]) {
          if (fragment->gshape != box.count) continue;  // its elements will be found missing
          const std::vector<CopyRun> runs = copy_runs(*fragment, box);
          cover.insert(cover.end(), runs.begin(), runs.end());
        }
        const std::string fault = cover_fault(std::move(cover), elements_of(box));
        if (fault.empty()) continue;
        report_.damages.push_back({.object = first, .dataset = path, .block = {}, .what = fault});
      }
    }
  }

  inline static const std::string kNoShard;

  ObjectStore& store_;
  PageReader pages_;
  VerifyReport report_;
};

}  // namespace

VerifyReport verify_checkpoints(ObjectStore& store) { return Verifier(store).run(); }

}  // namespace lockstep
