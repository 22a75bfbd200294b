// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/tools.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const auto sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

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
  if (elements == 0) return values;
  if (dtype == DType::f32) {
    std::memcpy(values.data(), data, elements * sizeof(float));
    return values;
  }
  std::vector<std::uint16_t> halves(elements);
  std::memcpy(halves.data(), data, elements * sizeof(std::uint16_t));
  std::transform(halves.begin(), halves.end(), values.begin(),
                 dtype == DType::bf16 ? from_bf16 : from_f16);
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

std::string weights_sha256(const StateDict& state) {
  std::vector<const StateEntry*> params;
  for (const StateEntry& entry : state.entries()) {
    if (entry.kind == StateKind::param && is_floating(entry.tensor.dtype())) {
      params.push_back(&entry);
    }
  }
  std::sort(params.begin(), params.end(),
            [](const StateEntry* a, const StateEntry* b) { return a->name < b->name; });
  Sha256 hash;
  for (const StateEntry* param : params) {
    const StateEntry* master = state.find(param->name, StateKind::master);
    const Tensor& tensor = master ? master->tensor : param->tensor;
    hash_weight(hash, param->name,
                widened(static_cast<const std::byte*>(tensor.data()),
                        static_cast<std::size_t>(tensor.size()), tensor.dtype()));
  }
  return to_hex(hash.finish());
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
