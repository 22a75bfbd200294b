// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/tensor.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

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
  if (device.kind != DeviceKind::cpu) {
    throw DeviceError("tensor on " + to_string(device) + ": this build has no such backend",
                      "use device = cpu, or build with -DLOCKSTEP_CUDA=ON");
  }
  // aligned_alloc wants a multiple of the alignment; an empty tensor still has an address.
  const std::size_t padded = (bytes() / kAlignment + 1) * kAlignment;
  data_ = std::aligned_alloc(kAlignment, padded);
  if (!data_) {
    throw DeviceError("no memory for a tensor of " + std::to_string(padded) + " bytes, shape " +
                          to_string(shape_) + " " + to_string(dtype),
                      "use a smaller model or batch.micro");
  }
  owner_ = std::shared_ptr<void>(data_, [](void* memory) { std::free(memory); });
}

Tensor Tensor::zeros(Device device, Shape shape, DType dtype) {
  Tensor tensor(device, std::move(shape), dtype);
  std::memset(tensor.data_, 0, tensor.bytes());
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
