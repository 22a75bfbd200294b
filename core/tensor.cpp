// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/tensor.h"

#include <utility>

#include "core/memory.h"
#include "lockstep/core/error.h"

namespace lockstep {

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::i64:
      return "i64";
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::u8:
      return "u8";
  }
  return "?";
}

std::int64_t elements_of(const Shape& shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Tensor::Tensor(Device device, Shape shape, DType dtype)
    : shape_(std::move(shape)), size_(elements_of(shape_)), dtype_(dtype), device_(device) {
  for (const std::int64_t dimension : shape_) {
    if (dimension < 0) {
      throw UsageError("tensor of shape " + to_string(shape_) + ": a dimension is negative",
                       "dimensions count elements");
    }
  }
  try {
    owner_ = device_memory(device, bytes());
  } catch (const DeviceError& error) {
    throw DeviceError("tensor of shape " + to_string(shape_) + " " + lockstep::to_string(dtype) +
                          " on " + to_string(device) + ": " + error.what(),
                      error.hint());
  }
  data_ = owner_.get();
}

Tensor Tensor::zeros(Device device, Shape shape, DType dtype) {
  Tensor tensor(device, std::move(shape), dtype);
  zero_memory(device, tensor.data_, tensor.bytes());
  return tensor;
}

Tensor Tensor::borrow(void* data, Shape shape, DType dtype, Device device,
                      std::shared_ptr<void> keep_alive) {
  Tensor tensor;
  tensor.owner_ = std::move(keep_alive);
  tensor.data_ = data;
  tensor.shape_ = std::move(shape);
  tensor.size_ = elements_of(tensor.shape_);
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

void Tensor::check_type(DType wanted) const {
  if (wanted == dtype_) return;
  throw UsageError(std::string("tensor of ") + lockstep::to_string(dtype_) + " read as " +
                       lockstep::to_string(wanted),
                   "use the element type that the tensor was made with");
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.empty() || begin < 0 || end < begin || end > shape_[0]) {
    throw UsageError("rows [" + std::to_string(begin) + ", " + std::to_string(end) +
                         ") of a tensor of shape " + lockstep::to_string(shape_),
                     "rows lie within dimension 0");
  }
  Tensor view = *this;
  const std::int64_t row = shape_[0] == 0 ? 0 : size_ / shape_[0];
  view.shape_[0] = end - begin;
  view.size_ = row * (end - begin);
  view.data_ =
      static_cast<std::byte*>(data_) + static_cast<std::size_t>(begin * row) * size_of(dtype_);
  return view;
}

Tensor Tensor::reshape(Shape shape) const {
  if (elements_of(shape) != size_) {
    throw UsageError("reshape of " + lockstep::to_string(shape_) + " to " +
                         lockstep::to_string(shape) + " changes the number of elements",
                     "give a shape of " + std::to_string(size_) + " elements");
  }
  Tensor view = *this;
  view.shape_ = std::move(shape);
  return view;
}

}  // namespace lockstep
