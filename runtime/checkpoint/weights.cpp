// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

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

}  // namespace

bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

std::vector<float> widened(const std::byte* data, std::size_t elements, DType dtype) {
  std::vector<float> values(elements);
  kernels::convert_elements(data, dtype, values.data(), DType::f32, elements);
  return values;
}

std::vector<float> read_weight(CommitReader& reader, const TensorLine& tensor) {
  const bool has_master =
      std::find(tensor.kinds.begin(), tensor.kinds.end(), StateKind::master) != tensor.kinds.end();
  const StateKind kind = has_master ? StateKind::master : StateKind::param;
  const DType dtype = saved_type(tensor, kind);
  const auto elements = static_cast<std::size_t>(elements_of(tensor.shape));
  std::vector<std::byte> bytes(elements * size_of(dtype));
  reader.read(tensor, kind, bytes.data());
  return widened(bytes.data(), elements, dtype);
}

std::span<const std::byte> little_endian(const std::vector<float>& values) noexcept {
  return std::as_bytes(std::span(values));
}

namespace {

// In byte order of the names; the master where there is one.
std::vector<const StateEntry*> weights_of(const StateDict& state) {
  std::vector<const StateEntry*> weights;
  for (const StateEntry& entry : state.entries()) {
    if (entry.kind != StateKind::param || !is_floating(entry.tensor.dtype())) continue;
    const StateEntry* master = state.find(entry.name, StateKind::master);
    weights.push_back(master ? master : &entry);
  }
  std::sort(weights.begin(), weights.end(),
            [](const StateEntry* a, const StateEntry* b) { return a->name < b->name; });
  return weights;
}

std::vector<float> widened(const Tensor& tensor) {
  return widened(static_cast<const std::byte*>(tensor.data()),
                 static_cast<std::size_t>(tensor.size()), tensor.dtype());
}

// Pieces have different sizes, but all_gather takes equal ones.
std::vector<float> gathered(const StateEntry& entry, Communicator& data) {
  const FlatPieces& pieces = *entry.pieces;
  std::int64_t most = 0;
  for (std::size_t r = 0; r + 1 < pieces.edges.size(); ++r) {
    most = std::max(most, pieces.edges[r + 1] - pieces.edges[r]);
  }
  const Tensor mine = Tensor::zeros(Device{}, {most}, DType::f32);
  const Tensor all(Device{}, {data.size(), most}, DType::f32);
  if (entry.tensor.size() > 0) {
    std::memcpy(mine.data(), entry.tensor.data(), entry.tensor.bytes());
  }
  data.all_gather(mine, all).wait();
  std::vector<float> values;
  for (std::int64_t r = 0; r < data.size(); ++r) {
    const float* piece = all.as<float>() + r * most;
    const auto rank = static_cast<std::size_t>(r);
    values.insert(values.end(), piece, piece + pieces.edges[rank + 1] - pieces.edges[rank]);
  }
  return values;
}

}  // namespace

std::string weights_sha256(const StateDict& state) {
  Sha256 hash;
  for (const StateEntry* weight : weights_of(state)) {
    if (weight->pieces) {
      throw UsageError("weights_sha256: the master of " + weight->name + " is in pieces",
                       "pass the communicator of the ranks that hold them");
    }
    hash_weight(hash, weight->name, widened(weight->tensor));
  }
  return to_hex(hash.finish());
}

std::string weights_sha256(const StateDict& state, Communicator& data) {
  Sha256 hash;
  for (const StateEntry* weight : weights_of(state)) {
    if (!weight->pieces && data.rank() != 0) continue;
    const std::vector<float> values =
        weight->pieces ? gathered(*weight, data) : widened(weight->tensor);
    if (data.rank() == 0) hash_weight(hash, weight->name, values);
  }
  return data.rank() == 0 ? to_hex(hash.finish()) : std::string();
}

std::string weights_sha256(ObjectStore& store, std::optional<std::uint64_t> step) {
  const FoundCommit found = find_commit(store, step);
  CommitReader reader(store, found.manifest);
  Sha256 hash;
  for (const TensorLine& tensor : found.manifest.tensors) {
    if (is_floating(tensor.dtype)) hash_weight(hash, tensor.name, read_weight(reader, tensor));
  }
  return to_hex(hash.finish());
}

}  // namespace lockstep
