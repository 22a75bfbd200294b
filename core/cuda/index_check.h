// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/cuda/kernel_args.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::kernels::cuda {

/// Indices that the device looks over before another kernel uses them. A kernel cannot throw: those
/// behind it do nothing where `skip` says so, and a task of the stream throws for them.
struct IndexCheck {
  /// In pinned memory, for the task; valid once the kernel has run.
  std::shared_ptr<const lockstep::cuda::BadIndex> bad;
  /// For the kernels behind this one; null if there are no indices.
  const std::int32_t* skip = nullptr;
  Tensor memory;  // of `skip`
};

/// Queues a search for the first of `values` that is neither in [0, limit) nor `ignored`.
IndexCheck check_indices(Stream& stream, const Tensor& values, std::int64_t limit,
                         std::optional<std::int32_t> ignored = {});

}  // namespace lockstep::kernels::cuda
