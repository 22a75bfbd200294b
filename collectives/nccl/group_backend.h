// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "collectives/nccl/communicator_handle.h"
#include "collectives/nccl/reduction.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::nccl {

/// A group of ranks with a GPU each. What it does is queued on a stream of its own, and the host
/// waits for the stream's events and asks for errors meanwhile, since NCCL itself tells nobody.
///
/// NCCL adds in an order of its own in all_reduce; where a plan gives the order, ranks exchange
/// slices and add them with our kernels, so that the bits are those of every other backend.
class GroupBackend final : public Backend {
 public:
  /// Until all `size` ranks that know `id` have come.
  GroupBackend(int rank, int size, Device device, const ncclUniqueId& id, Wait& wait);
  ~GroupBackend() override;

  const char* name() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return static_cast<int>(rank_); }
  int size() const noexcept override { return static_cast<int>(size_); }
  Device device() const noexcept override { return device_; }

  std::vector<std::string> take_notes() override { return communicator_.take_notes(); }
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
  // Taken once: an allocation between operations could wait for those of other groups. A bucket of
  // 25 MiB with a part a rank is one piece.
  static constexpr std::size_t kScratchBytes = std::size_t{32} << 20;

  using Call = std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>;
  struct Message {
    bool sends = false;
    std::size_t peer = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  // What queued work uses.
  struct Buffers {
    Stream stream;
    std::shared_ptr<void> scratch;  // of the device
    std::shared_ptr<void> host;     // page-locked
  };
  struct Job;  // a sum by a plan
  class AbortUnlessDone;

  void release() noexcept;
  // The operations without what is common to all.
  Task run(Task operation, Wait& wait);
  Task queue_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op, Wait& wait);
  Task combine_on_host(std::byte* inout, std::size_t count, DType dtype, ReduceOp op, Wait& wait);
  Task queue_slices(float* inout, std::vector<std::size_t> edges, Wait& wait);
  Task queue_gather(const std::byte* in, std::byte* out, std::size_t bytes_each, Wait& wait);
  Task queue_broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait);

  // Sums by a plan, on the stream.
  Task reduce(Job job, Wait& wait);
  void name_parts(const Job& job, std::size_t piece, std::vector<Message>& messages);
  void add_own_slice(const Job& job, std::size_t piece);
  void name_sums(const Job& job, std::size_t piece, std::vector<Message>& messages);
  void widen_sums(const Job& job, std::size_t piece);

  /// Until NCCL has queued what `call` gives it on the stream; it may still have to run.
  Task queue(const char* name, Call call, Wait& wait);
  Task queue(std::vector<Message> messages, Wait& wait);
  /// Until all that is queued on the stream is done.
  Task settle(Wait& wait);

  Tensor at(void* data, std::size_t count, DType dtype = DType::f32) const;
  std::byte* scratch(std::size_t offset = 0) const;
  void count_ring(std::size_t bytes, std::size_t rounds);

  std::size_t rank_;
  std::size_t size_;
  Device device_;
  std::unique_ptr<Buffers> buffers_;
  CommunicatorHandle communicator_;  // last: goes before what it uses
};

}  // namespace lockstep::nccl
