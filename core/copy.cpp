// SPDX-License-Identifier: Apache-2.0
#include "core/copy.h"

#include <cstring>
#include <memory>
#include <utility>

#include "core/host_memory.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool is_on_host(const Tensor& tensor) noexcept { return tensor.device().kind == DeviceKind::cpu; }

void check_sizes(const Tensor& from, const Tensor& to) {
  if (from.bytes() == to.bytes()) return;
  throw UsageError("copy: from " + to_string(from.shape()) + " " + to_string(from.dtype()) +
                       " to " + to_string(to.shape()) + " " + to_string(to.dtype()),
                   "pass tensors of the same number of bytes");
}

void check_device(const Tensor& tensor, const Stream& stream) {
  if (is_on_host(tensor) || tensor.device() == stream.device()) return;
  throw UsageError("copy: a tensor on " + to_string(tensor.device()) + " with a stream on " +
                       to_string(stream.device()),
                   "pass a stream of the tensor's device");
}

}  // namespace

Tensor host_tensor(Device device, Shape shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(elements_of(shape)) * size_of(dtype);
  std::shared_ptr<void> memory = host_memory(device, bytes);
  void* const data = memory.get();
  return Tensor::borrow(data, std::move(shape), dtype, Device{}, std::move(memory));
}

void queue_copy(Stream& stream, const Tensor& from, const Tensor& to) {
  check_sizes(from, to);
  check_device(from, stream);
  check_device(to, stream);
  if (from.data() == to.data() || from.bytes() == 0) return;
  if (stream.device().kind == DeviceKind::cpu) {
    stream.enqueue([from, to] { std::memcpy(to.data(), from.data(), from.bytes()); });
  } else {
    cuda::queue_copy(stream, from.data(), to.data(), from.bytes());
  }
}

void copy_now(const Tensor& from, const Tensor& to) {
  if (is_on_host(from) && is_on_host(to)) {
    check_sizes(from, to);
    if (from.bytes() > 0) std::memmove(to.data(), from.data(), from.bytes());
    return;
  }
  Stream stream(is_on_host(from) ? to.device() : from.device(), "copy");
  queue_copy(stream, from, to);
  stream.synchronize();
}

Tensor on_host(const Tensor& tensor) {
  if (is_on_host(tensor)) return tensor;
  Tensor copy(Device{}, tensor.shape(), tensor.dtype());
  copy_now(tensor, copy);
  return copy;
}

}  // namespace lockstep
