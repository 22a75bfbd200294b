// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "core/copy.h"
#include "core/kernels.h"
#include "lockstep/collectives/communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/tools.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

void hash_weight(Sha256& hash, const std::string& name, const std::vector<float>& values) {
  hash.update(name);
  hash.update(std::string_view("\0", 1));
  hash.update(little_endian(values));
}

// In byte order of the names; the master where there is one.
std::vector<const StateEntry*> weights_of(const StateDict& state) {
  std::vector<const StateEntry*> weights;
  for (const StateEntry& entry : state.entries()) {
    if (entry.kind != StateKind::param || !is_weight_type(entry.tensor.dtype())) continue;
    const StateEntry* master = state.find(entry.name, StateKind::master);
    weights.push_back(master ? master : &entry);
  }
  std::sort(weights.begin(), weights.end(),
            [](const StateEntry* a, const StateEntry* b) { return a->name < b->name; });
  return weights;
}

// On rank 0. Pieces have different sizes, but all_gather takes equal ones.
std::vector<float> gathered(const StateEntry& entry, Communicator& data) {
  const std::vector<std::int64_t>& edges = entry.pieces->edges;
  std::int64_t most = 0;
  for (std::size_t r = 0; r + 1 < edges.size(); ++r) most = std::max(most, edges[r + 1] - edges[r]);
  const Tensor mine = Tensor::zeros(Device{}, {most}, DType::f32);
  const Tensor all(Device{}, {data.size(), most}, DType::f32);
  copy_now(entry.tensor, mine.rows(0, entry.tensor.size()));
  data.host().all_gather(mine, all).wait();
  std::vector<float> values;
  for (std::size_t r = 0; data.rank() == 0 && r + 1 < edges.size(); ++r) {
    const float* piece = all.as<float>() + static_cast<std::int64_t>(r) * most;
    values.insert(values.end(), piece, piece + edges[r + 1] - edges[r]);
  }
  return values;
}

// `data` is null where nothing is in pieces.
std::string sha256_of(const StateDict& state, Communicator* data) {
  const bool hashes = !data || data->rank() == 0;
  Sha256 hash;
  for (const StateEntry* weight : weights_of(state)) {
    std::vector<float> values;
    if (weight->pieces && !data) {
      throw UsageError("weights_sha256: the master of " + weight->name + " is in pieces",
                       "pass the communicator of the ranks that hold them");
    }
    if (weight->pieces) {
      values = gathered(*weight, *data);
    } else if (hashes) {
      const Tensor value = on_host(weight->tensor);
      values = widened(static_cast<const std::byte*>(value.data()),
                       static_cast<std::size_t>(value.size()), value.dtype());
    }
    if (hashes) hash_weight(hash, weight->name, values);
  }
  return hashes ? to_hex(hash.finish()) : std::string();
}

}  // namespace

std::vector<float> widened(const std::byte* data, std::size_t elements, DType dtype) {
  std::vector<float> values(elements);
  kernels::convert_elements(data, dtype, values.data(), DType::f32, elements);
  return values;
}

std::vector<float> read_weight(CommitReader& reader, const TensorLine& tensor) {
  std::vector<float> values(static_cast<std::size_t>(elements_of(tensor.shape)));
  reader.read(tensor, StateKind::master, {.start = 0, .length = values.size()},
              Tensor::borrow(values.data(), tensor.shape, DType::f32, Device{}));
  return values;
}

std::span<const std::byte> little_endian(const std::vector<float>& values) noexcept {
  return std::as_bytes(std::span(values));
}

std::string weights_sha256(const StateDict& state) { return sha256_of(state, nullptr); }

std::string weights_sha256(const StateDict& state, Communicator& data) {
  return sha256_of(state, &data);
}

std::string weights_sha256(ObjectStore& store, std::optional<std::uint64_t> step) {
  const FoundCommit found = find_commit(store, step);
  CommitReader reader(store, found.manifest);
  Sha256 hash;
  for (const TensorLine& tensor : found.manifest.tensors) {
    if (is_weight_type(tensor.dtype)) hash_weight(hash, tensor.name, read_weight(reader, tensor));
  }
  return to_hex(hash.finish());
}

}  // namespace lockstep
