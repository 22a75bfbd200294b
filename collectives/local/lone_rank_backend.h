// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/backend.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// A group of one rank whose tensors lie on any device: its operations have next to nothing to do.
class LoneRankBackend : public Backend {
 public:
  explicit LoneRankBackend(Device device) : stream_(device) {}

  const char* name() const noexcept override { return "local"; }
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  Device device() const noexcept override { return stream_.device(); }
  /// A task of a CUDA stream, which may help, must not call CUDA.
  bool any_thread() const noexcept override { return device().kind == DeviceKind::cpu; }

  Task allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) override;
  Task all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                  Wait& wait) override;
  Task reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                    const SumPlan& plan, Wait& wait) override;
  Task reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                      const SumPlan& plan, std::span<const std::size_t> edges, Wait& wait) override;
  Task all_gather_slices(float* inout, std::size_t count, std::span<const std::size_t> edges,
                         Wait& wait) override;
  Task all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each, Wait& wait) override;
  Task broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) override;
  Task barrier(Wait& wait) override;

 private:
  Tensor tensor_at(void* data, std::size_t count, DType dtype) const;
  /// Until what is queued on the stream is done.
  Task settle(Wait& wait);

  Stream stream_;
};

}  // namespace lockstep
