// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/shard_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <tuple>

#include "lockstep/core/hash.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {
namespace {

constexpr std::array kSavedTypes = {DType::f32, DType::f16, DType::bf16, DType::u8, DType::i64};
constexpr std::uint64_t kCutElements = 1024;
constexpr std::uint64_t kLargeAlignment = 4096;  // for datasets of at least so many bytes
constexpr std::uint64_t kSmallAlignment = 64;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t product(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{1}, std::multiplies<>());
}

std::string joined(const std::vector<std::uint64_t>& numbers) {
  if (numbers.empty()) return ".";
  std::string text;
  for (const std::uint64_t number : numbers) {
    if (!text.empty()) text += ",";
    text += std::to_string(number);
  }
  return text;
}

/// Indices of the tensors in the order of the file.
std::vector<std::size_t> file_order(const std::vector<PlanTensor>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return std::make_tuple(tensors[i].kind != StateKind::param, std::string_view(tensors[i].name),
                           tensors[i].kind);
  };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) < key(b); });
  return order;
}

Fragment make_fragment(const PlanTensor& tensor, std::size_t source, FlatRun run) {
  const std::uint64_t elements = product(tensor.gshape);
  Fragment fragment{.kind = to_string(tensor.kind),
                    .path = {},
                    .dtype = tensor.dtype,
                    .gshape = tensor.gshape,
                    .box = whole_box(tensor.gshape),
                    .flat = {},
                    .replica = {},
                    .offset = 0,
                    .bytes = run.length * size_of(tensor.dtype),
                    .crcs = {},
                    .source = source};
  if (run.length != elements) fragment.flat = run;
  return fragment;
}

}  // namespace

std::optional<DType> saved_dtype(std::string_view name) {
  for (const DType dtype : kSavedTypes) {
    if (name == to_string(dtype)) return dtype;
  }
  return std::nullopt;
}

bool can_be_saved(DType dtype) noexcept {
  return std::find(kSavedTypes.begin(), kSavedTypes.end(), dtype) != kSavedTypes.end();
}

std::uint64_t elements_of(const Box& box) noexcept { return product(box.count); }

Box whole_box(const std::vector<std::uint64_t>& shape) {
  return {.start = std::vector<std::uint64_t>(shape.size(), 0), .count = shape};
}

std::uint64_t elements_of(const Fragment& fragment) noexcept {
  return fragment.flat ? fragment.flat->length : elements_of(fragment.box);
}

std::uint64_t blocks_of(const Fragment& fragment) noexcept {
  return (fragment.bytes + kBlockBytes - 1) / kBlockBytes;
}

std::vector<std::vector<Fragment>> plan_shards(const std::vector<PlanTensor>& tensors,
                                               std::uint64_t writers, std::uint64_t block_limit) {
  std::uint64_t total = 0;
  for (const PlanTensor& tensor : tensors) {
    if (tensor.edges.empty()) total += product(tensor.gshape) * size_of(tensor.dtype);
  }

  std::vector<std::vector<Fragment>> shards(writers);
  std::uint64_t line_writer = 0;
  std::uint64_t position = 0;  // on the line of all bytes
  for (const std::size_t source : file_order(tensors)) {
    const PlanTensor& tensor = tensors[source];
    const std::uint64_t width = size_of(tensor.dtype);
    const std::uint64_t elements = product(tensor.gshape);
    // The next run of this tensor, which begins at `done`: up to `cut`, if it is not too long.
    std::uint64_t done = 0;
    std::uint64_t run = 0;  // of this tensor in this shard
    const auto append = [&](std::uint64_t writer, std::uint64_t cut) {
      const std::uint64_t length = std::min(cut - done, block_limit * kBlockBytes / width);
      Fragment fragment = make_fragment(tensor, source, {.start = done, .length = length});
      fragment.path = dataset_path(fragment.kind, tensor.name, run++);
      shards[writer].push_back(std::move(fragment));
      done += length;
    };
    for (std::uint64_t writer = 0; writer + 1 < tensor.edges.size(); ++writer) {
      run = 0;
      while (done < tensor.edges[writer + 1]) append(writer, tensor.edges[writer + 1]);
    }
    while (done < elements) {
      // The cut behind this writer, in elements of this tensor; the last writer takes the rest.
      const std::uint64_t share =
          total / writers * (line_writer + 1) + total % writers * (line_writer + 1) / writers;
      std::uint64_t cut = elements;
      if (line_writer + 1 < writers && share < position + elements * width) {
        cut = share <= position ? 0 : (share - position) / width / kCutElements * kCutElements;
      }
      if (cut > done) {
        append(line_writer, cut);
      } else {
        ++line_writer;
        run = 0;
      }
    }
    if (tensor.edges.empty()) position += elements * width;
  }
  return shards;
}

std::uint64_t aligned_start(std::uint64_t end, std::uint64_t bytes) noexcept {
  return round_up(end, bytes >= kLargeAlignment ? kLargeAlignment : kSmallAlignment);
}

std::uint64_t place_fragments(std::vector<Fragment>& fragments, std::uint64_t head_bytes) noexcept {
  std::uint64_t end = head_bytes;
  for (Fragment& fragment : fragments) {
    fragment.offset = aligned_start(end, fragment.bytes);
    end = fragment.offset + fragment.bytes;
  }
  return end;
}

std::string plan_sha256(const CheckpointMesh& mesh,
                        const std::vector<std::vector<Fragment>>& shards) {
  Sha256 hash;
  hash.update("mesh " + std::to_string(mesh.dp) + " " + std::to_string(mesh.tp) + " " +
              std::to_string(mesh.zero) + " block " + std::to_string(kBlockBytes) + "\n");
  for (std::size_t writer = 0; writer < shards.size(); ++writer) {
    std::vector<const Fragment*> by_offset;
    for (const Fragment& fragment : shards[writer]) {
      if (fragment.kind != "state") by_offset.push_back(&fragment);
    }
    std::sort(by_offset.begin(), by_offset.end(),
              [](const Fragment* a, const Fragment* b) { return a->offset < b->offset; });
    for (const Fragment* fragment : by_offset) {
      std::vector<std::uint64_t> box = fragment->box.start;
      box.insert(box.end(), fragment->box.count.begin(), fragment->box.count.end());
      const auto& flat = fragment->flat;
      hash.update(std::to_string(writer) + " " + std::to_string(fragment->offset) + " " +
                  to_string(fragment->dtype) + " " + joined(fragment->gshape) + " " + joined(box) +
                  " " + (flat ? joined({flat->start, flat->length}) : "-") + " " +
                  (fragment->replica ? std::to_string(*fragment->replica) : "-") + " " +
                  fragment->path + "\n");
    }
  }
  return to_hex(hash.finish());
}

}  // namespace lockstep
