// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/device.h"

struct DLManagedTensorVersioned;  // of dlpack.h, which only callers of the two functions need

namespace lockstep {

enum class DType : std::uint8_t { f32, bf16, f16, f64, i64, i32, u8 };

/// Bytes of one element.
std::size_t size_of(DType dtype) noexcept;
/// bf16 and f16: 16 bits of a real number.
constexpr bool is_half(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f16; }
/// f32, bf16 and f16: what weights are made of.
constexpr bool is_weight_type(DType dtype) noexcept {
  return dtype == DType::f32 || is_half(dtype);
}
/// "f32", "bf16", …
const char* to_string(DType dtype) noexcept;

/// Elements per dimension, outermost first. Empty: a scalar of one element.
using Shape = std::vector<std::int64_t>;

/// The product of the dimensions.
std::int64_t elements_of(const Shape& shape) noexcept;
/// "[2, 3]"
std::string to_string(const Shape& shape);

/// A dense row-major array. A copy shares the memory, which lives until its last user is gone.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised memory, aligned to 64 bytes. Throws DeviceError if there is none.
  Tensor(Device device, Shape shape, DType dtype);
  static Tensor zeros(Device device, Shape shape, DType dtype);

  /// Memory of somebody else, kept alive by `keep_alive` if given.
  static Tensor borrow(void* data, Shape shape, DType dtype, Device device,
                       std::shared_ptr<void> keep_alive = {});

  /// Takes over a DLPack tensor (major version 1). Refuses strides, other devices and lanes with a
  /// UsageError, after calling its deleter.
  static Tensor from_dlpack(DLManagedTensorVersioned* tensor);
  /// Shares the memory; the receiver calls the deleter.
  DLManagedTensorVersioned* to_dlpack() const;

  const Shape& shape() const noexcept { return shape_; }
  std::int64_t dim(std::size_t i) const { return shape_.at(i); }
  DType dtype() const noexcept { return dtype_; }
  Device device() const noexcept { return device_; }
  std::int64_t size() const noexcept { return size_; }  // elements
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(size_) * size_of(dtype_); }
  bool defined() const noexcept { return data_ != nullptr; }

  void* data() const noexcept { return data_; }
  /// The elements as T. Throws UsageError if T is not the element type.
  template <typename T>
  T* as() const {
    check_type(type_of(static_cast<T*>(nullptr)));
    return static_cast<T*>(data_);
  }

  /// Rows [begin, end) along dimension 0: a view.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  /// The same elements in another shape: a view.
  Tensor reshape(Shape shape) const;

 private:
  static DType type_of(const float*) noexcept { return DType::f32; }
  static DType type_of(const double*) noexcept { return DType::f64; }
  static DType type_of(const std::int64_t*) noexcept { return DType::i64; }
  static DType type_of(const std::int32_t*) noexcept { return DType::i32; }
  static DType type_of(const std::uint8_t*) noexcept { return DType::u8; }
  void check_type(DType wanted) const;

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::f32;
  Device device_;
};

}  // namespace lockstep
