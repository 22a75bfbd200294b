// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/elementwise.h"

#include <cstdint>
#include <type_traits>

#include "lockstep/core/error.h"

namespace lockstep::shared_memory {
namespace {

template <typename T>
T added(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
bool is_nan(T value) noexcept {
  return value != value;  // NOLINT(misc-redundant-expression): only a NaN differs from itself
}

template <typename T>
void combine_as(std::byte* into_bytes, const std::byte* from_bytes, std::size_t count,
                ReduceOp op) {
  T* into = reinterpret_cast<T*>(into_bytes);
  const T* from = reinterpret_cast<const T*>(from_bytes);
  switch (op) {
    case ReduceOp::sum:
      for (std::size_t i = 0; i < count; ++i) into[i] = added(into[i], from[i]);
      return;
    case ReduceOp::min:
      for (std::size_t i = 0; i < count; ++i) {
        if (from[i] < into[i] || is_nan(from[i])) into[i] = from[i];
      }
      return;
    case ReduceOp::max:
      for (std::size_t i = 0; i < count; ++i) {
        if (from[i] > into[i] || is_nan(from[i])) into[i] = from[i];
      }
      return;
  }
}

}  // namespace

void combine(std::byte* into, const std::byte* from, std::size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(into, from, count, op);
    case DType::f64:
      return combine_as<double>(into, from, count, op);
    case DType::i64:
      return combine_as<std::int64_t>(into, from, count, op);
    default:
      throw UsageError(std::string("all_reduce of ") + to_string(dtype) + " elements",
                       "reduce f32, f64 or i64");
  }
}

}  // namespace lockstep::shared_memory
