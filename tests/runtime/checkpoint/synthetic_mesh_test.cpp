// SPDX-License-Identifier: Apache-2.0
// Shards as tensor-parallel ranks would write them, data × tensor, read by other meshes: the format
// and the planner of reads do not wait for layers that are split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/shard.h"
#include "tests/runtime/checkpoint/job_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using namespace testing;

struct SplitTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::optional<std::size_t> dim;  // along which tensor-parallel ranks split it
};

/// Rows, columns and middles that no number of ranks divides; what is whole; less than there are
/// ranks.
const std::vector<SplitTensor>& tensors() {
  static const std::vector<SplitTensor> all = {{"rows", {13, 6}, 0},     {"columns", {5, 14}, 1},
                                               {"middle", {4, 5, 6}, 1}, {"whole", {7}, {}},
                                               {"scalar", {}, {}},       {"few", {2, 3}, 0}};
  return all;
}
constexpr std::array<StateKind, 2> kKinds = {StateKind::param, StateKind::m};

std::uint64_t ceiling(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// Part `index` of `parts` of `size` elements, all but the last equally long: (start, length).
FlatRun part_of(std::uint64_t size, std::uint64_t index, std::uint64_t parts) {
  const std::uint64_t each = ceiling(size, parts);
  const std::uint64_t start = std::min(size, index * each);
  return {.start = start, .length = std::min(each, size - start)};
}

/// What a rank holds: a slice, as ZeRO-1 makes them, of its tensor-parallel box.
struct Placed {
  Box box;
  FlatRun run;
};
Placed placed(const SplitTensor& tensor, const CheckpointMesh& mesh, std::uint64_t rank) {
  Placed place{.box = whole_box(tensor.shape), .run = {}};
  if (tensor.dim) {
    const FlatRun part = part_of(tensor.shape[*tensor.dim], rank % mesh.tp, mesh.tp);
    place.box.start[*tensor.dim] = part.start;
    place.box.count[*tensor.dim] = part.length;
  }
  place.run = part_of(elements_of(place.box), rank / mesh.tp, mesh.dp);
  return place;
}

/// The values of a kind of a tensor: its elements are numbered.
std::vector<float> values_of(const SplitTensor& tensor, StateKind kind, const Placed& place) {
  std::vector<float> values;
  for (std::uint64_t i = place.run.start; i < place.run.start + place.run.length; ++i) {
    std::uint64_t rest = i;
    std::uint64_t number = 0;
    std::uint64_t stride = 1;
    for (std::size_t d = tensor.shape.size(); d-- > 0;) {
      number += (place.box.start[d] + rest % place.box.count[d]) * stride;
      rest /= place.box.count[d];
      stride *= tensor.shape[d];
    }
    values.push_back(static_cast<float>(number) + (kind == StateKind::m ? 1000.0F : 0.0F));
  }
  return values;
}

/// What a mesh has written, with the heads as they are read back.
struct Saved {
  Manifest manifest;
  std::vector<OpenShard> shards;
};

/// Writes the shards of all ranks of `mesh`; of a tensor that is not split all but the first
/// tensor-parallel rank write an extra copy.
Saved save_from(const CheckpointMesh& mesh, ObjectStore& store) {
  Saved saved;
  Manifest& manifest = saved.manifest;
  manifest.job = "job";
  manifest.epoch = 1;
  manifest.mesh = mesh;
  manifest.plan_sha256 = std::string(64, '0');
  manifest.state.step = 10;
  for (std::uint64_t rank = 0; rank < mesh.dp * mesh.tp; ++rank) {
    ShardHead head;
    head.job = manifest.job;
    head.epoch = 1;
    head.step = 10;
    head.writer = rank;
    head.mesh = mesh;
    head.plan_sha256 = manifest.plan_sha256;
    std::vector<std::vector<float>> values;
    for (const StateKind kind : kKinds) {
      for (const SplitTensor& tensor : tensors()) {
        const Placed place = placed(tensor, mesh, rank);
        if (place.run.length == 0) continue;
        Fragment fragment;
        fragment.kind = to_string(kind);
        fragment.path = dataset_path(fragment.kind, tensor.name, 0);
        fragment.gshape = tensor.shape;
        fragment.box = place.box;
        fragment.bytes = place.run.length * sizeof(float);
        if (place.run.length < elements_of(place.box)) fragment.flat = place.run;
        if (!tensor.dim && rank % mesh.tp > 0) fragment.replica = rank % mesh.tp;
        head.fragments.push_back(fragment);
        values.push_back(values_of(tensor, kind, place));
      }
    }
    head.head_bytes = head_size(head.fragments);
    head.total_bytes = place_fragments(head.fragments, head.head_bytes);
    std::vector<const std::byte*> data;
    for (const auto& each : values) data.push_back(reinterpret_cast<const std::byte*>(each.data()));
    const std::string key = shard_key({.step = 10, .epoch = 1}, rank);
    manifest.shards.push_back(write_shard(store, key, head, data));
  }
  for (const ManifestShard& shard : manifest.shards) {
    saved.shards.push_back(open_shard(store, manifest, shard));
  }
  return saved;
}

/// What rank `rank` of `mesh` needs, from all shards but fragment `lost` of the kind and tensor:
/// its values, or what is wrong with the cover.
struct Read {
  std::vector<float> values;
  std::string fault;
};
Read read_to(const CheckpointMesh& mesh, std::uint64_t rank, const SplitTensor& tensor,
             StateKind kind, PageReader& pages, const Saved& saved,
             std::optional<std::size_t> lost = {}) {
  const Placed place = placed(tensor, mesh, rank);
  Read read{.values = std::vector<float>(place.run.length), .fault = {}};
  std::vector<CopyRun> cover;
  std::size_t seen = 0;
  for (const OpenShard& shard : saved.shards) {
    for (const Fragment& fragment : shard.head.fragments) {
      if (fragment.path != dataset_path(to_string(kind), tensor.name, 0)) continue;
      if (fragment.replica.value_or(0) > 0 || seen++ == lost) continue;
      const auto runs = clipped(copy_runs(fragment, place.box), place.run);
      cover.insert(cover.end(), runs.begin(), runs.end());
      read_fragment(pages, shard.object, fragment, runs,
                    reinterpret_cast<std::byte*>(read.values.data()));
    }
  }
  read.fault = cover_fault(std::move(cover), place.run.length);
  return read;
}

std::string name_of(const CheckpointMesh& mesh) {
  return std::to_string(mesh.dp) + "x" + std::to_string(mesh.tp);
}

const std::vector<CheckpointMesh>& meshes() {
  static const std::vector<CheckpointMesh> all = {{1, 1, 1}, {2, 2, 1}, {4, 1, 1},
                                                  {1, 4, 1}, {3, 1, 1}, {2, 3, 1}};
  return all;
}

TEST(SyntheticMesh, ShardsOfAnyMeshGiveEveryOtherItsElements) {
  for (const CheckpointMesh& from : meshes()) {
    const auto store = fresh_memory_store();
    const Saved saved = save_from(from, *store);
    PageReader pages(*store);
    for (const CheckpointMesh& to : meshes()) {
      SCOPED_TRACE(name_of(from) + " to " + name_of(to));
      for (std::uint64_t rank = 0; rank < to.dp * to.tp; ++rank) {
        for (const SplitTensor& tensor : tensors()) {
          for (const StateKind kind : kKinds) {
            const Read read = read_to(to, rank, tensor, kind, pages, saved);
            EXPECT_EQ(read.fault, "") << tensor.name << " of rank " << rank;
            EXPECT_EQ(read.values, values_of(tensor, kind, placed(tensor, to, rank)))
                << tensor.name << " of rank " << rank;
          }
        }
      }
    }
  }
}

TEST(SyntheticMesh, AHoleIsFoundByTheRankThatNeedsIt) {
  const auto store = fresh_memory_store();
  const Saved saved = save_from({2, 2, 1}, *store);
  PageReader pages(*store);
  for (const CheckpointMesh& to : meshes()) {
    SCOPED_TRACE(name_of(to));
    for (const SplitTensor& tensor : {tensors()[0], tensors()[1], tensors()[2]}) {
      for (const std::size_t lost : {0U, 3U}) {
        bool found = false;
        for (std::uint64_t rank = 0; rank < to.dp * to.tp; ++rank) {
          const Read read = read_to(to, rank, tensor, StateKind::m, pages, saved, lost);
          const bool whole =
              read.values == values_of(tensor, StateKind::m, placed(tensor, to, rank));
          EXPECT_EQ(read.fault.empty(), whole) << tensor.name << " of rank " << rank;
          if (whole) continue;
          EXPECT_THAT(read.fault, HasSubstr("no shard holds"));
          found = true;
        }
        EXPECT_TRUE(found) << tensor.name << " without fragment " << lost;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
