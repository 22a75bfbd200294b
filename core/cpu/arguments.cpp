// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/arguments.h"

#include "lockstep/core/error.h"

namespace lockstep::kernels {

Matrix as_matrix(const Tensor& tensor) noexcept {
  if (tensor.shape().empty()) return {.rows = tensor.size(), .columns = 1};
  Matrix matrix{.rows = 1, .columns = tensor.shape().back()};
  for (std::size_t i = 0; i + 1 < tensor.shape().size(); ++i) matrix.rows *= tensor.shape()[i];
  return matrix;
}

Arguments::Arguments(const char* kernel, const Stream& stream)
    : kernel_(kernel), device_(stream.device()) {}

void Arguments::tensor(const char* name, const Tensor& tensor, DType dtype) const {
  const std::string argument(name);
  if (!tensor.defined() && (tensor.shape().empty() || tensor.size() > 0)) {
    fail(argument + " is undefined", "give it memory first");
  }
  if (tensor.dtype() != dtype) {
    fail(argument + " is " + to_string(tensor.dtype()) + ", not " + to_string(dtype),
         "convert it, or pass the tensor that was meant");
  }
  if (tensor.device() != device_) {
    fail(
        argument + " is on " + to_string(tensor.device()) + ", the stream on " + to_string(device_),
        "use a stream of the tensor's device");
  }
}

void Arguments::sized(const char* name, const Tensor& tensor, std::int64_t size,
                      DType dtype) const {
  this->tensor(name, tensor, dtype);
  if (tensor.size() != size) {
    fail(std::string(name) + " has shape " + to_string(tensor.shape()) + ", " +
             std::to_string(tensor.size()) + " elements instead of " + std::to_string(size),
         "compare the shapes with the comment in core/kernels.h");
  }
}

void Arguments::require(bool holds, const char* problem, const char* hint) const {
  if (!holds) fail(problem, hint);
}

void Arguments::fail(const std::string& problem, const std::string& hint) const {
  throw UsageError(std::string(kernel_) + ": " + problem, hint);
}

}  // namespace lockstep::kernels
