// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/tensor.h"

// The structures of DLPack 1.0, laid out as its specification says. They are declared here because
// Debian's dlpack.h is older than the versioned form.
extern "C" {
struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};
struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
}

namespace lockstep {
namespace {

constexpr std::int32_t kCpu = 1;
constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint8_t kInt = 0;
constexpr std::uint8_t kUnsigned = 1;
constexpr std::uint8_t kFloat = 2;
constexpr std::uint8_t kBfloat = 4;

DLDataType to_dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::bf16:
      return {kBfloat, bits, 1};
    case DType::i64:
    case DType::i32:
      return {kInt, bits, 1};
    case DType::u8:
      return {kUnsigned, bits, 1};
    case DType::f16:
    case DType::f32:
    case DType::f64:
      break;
  }
  return {kFloat, bits, 1};
}

DType from_dlpack_type(DLDataType type) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::u8}) {
    const DLDataType candidate = to_dlpack_type(dtype);
    if (candidate.code == type.code && candidate.bits == type.bits && type.lanes == 1) return dtype;
  }
  throw UsageError("DLPack tensor of type code " + std::to_string(type.code) + ", " +
                       std::to_string(type.bits) + " bits, " + std::to_string(type.lanes) +
                       " lanes",
                   "use f32, f64, bf16, f16, i64, i32 or u8");
}

void check_layout(const DLTensor& tensor) {
  if (tensor.device.device_type != kCpu) {
    throw UsageError("DLPack tensor on device type " + std::to_string(tensor.device.device_type),
                     "this build takes tensors in CPU memory");
  }
  if (!tensor.strides) return;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) {
      throw UsageError("DLPack tensor with strides", "pass a contiguous tensor: x.contiguous()");
    }
    expected *= tensor.shape[i];
  }
}

struct Export {
  DLManagedTensorVersioned managed;
  Tensor tensor;
  Shape shape;
};

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensorVersioned* tensor) {
  const std::shared_ptr<DLManagedTensorVersioned> owner(tensor, [](DLManagedTensorVersioned* held) {
    if (held->deleter) held->deleter(held);
  });
  if (tensor->version.major != 1) {
    throw UsageError("DLPack version " + std::to_string(tensor->version.major),
                     "this build reads major version 1");
  }
  if ((tensor->flags & kReadOnly) != 0) {
    throw UsageError("DLPack tensor is read-only", "pass a tensor that may be written");
  }
  const DLTensor& source = tensor->dl_tensor;
  check_layout(source);
  return borrow(static_cast<std::byte*>(source.data) + source.byte_offset,
                Shape(source.shape, source.shape + source.ndim), from_dlpack_type(source.dtype), {},
                owner);
}

DLManagedTensorVersioned* Tensor::to_dlpack() const {
  auto held = std::make_unique<Export>();
  held->tensor = *this;
  held->shape = shape_;
  held->managed = {
      .version = {1, 0},
      .manager_ctx = held.get(),
      .deleter =
          [](DLManagedTensorVersioned* self) { delete static_cast<Export*>(self->manager_ctx); },
      .flags = 0,
      .dl_tensor = {.data = data_,
                    .device = {kCpu, 0},
                    .ndim = static_cast<std::int32_t>(shape_.size()),
                    .dtype = to_dlpack_type(dtype_),
                    .shape = held->shape.data(),
                    .strides = nullptr,
                    .byte_offset = 0}};
  return &held.release()->managed;
}

}  // namespace lockstep
