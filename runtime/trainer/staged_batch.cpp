// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/staged_batch.h"

#include "core/copy.h"

namespace lockstep {
namespace {

Tensor twin(Device device, const Tensor& host) {
  return device.kind == DeviceKind::cpu ? host : Tensor(device, host.shape(), host.dtype());
}

}  // namespace

StagedBatch::StagedBatch(Device on, std::int64_t rows, std::int64_t context)
    : host{.tokens = host_tensor(on, {rows, context}, DType::i32),
           .targets = host_tensor(on, {rows, context}, DType::i32)},
      device{.tokens = twin(on, host.tokens), .targets = twin(on, host.targets)} {}

void StagedBatch::send(Stream& compute) const {
  queue_copy(compute, host.tokens, device.tokens);
  queue_copy(compute, host.targets, device.targets);
}

}  // namespace lockstep
