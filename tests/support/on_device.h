// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/copy.h"

namespace lockstep::testing_support {

/// The elements where the host reads them: `tensor` itself on the CPU, else a copy.
using lockstep::on_host;

/// Elements of `host` into `tensor`, of the same shape and type.
inline void put(const Tensor& host, const Tensor& tensor) {
  if (host.data() != tensor.data()) copy_now(host, tensor);
}

/// `host` on `device`: itself on the CPU, else a copy.
inline Tensor on_device(Device device, const Tensor& host) {
  if (device.kind == DeviceKind::cpu) return host;
  const Tensor tensor(device, host.shape(), host.dtype());
  put(host, tensor);
  return tensor;
}

}  // namespace lockstep::testing_support
