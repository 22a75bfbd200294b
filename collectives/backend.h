// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/prepared.h"
#include "collectives/task.h"
#include "collectives/wait.h"
#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// What a transport must do. Called on the communication thread, one operation at a time, in the
/// same order on every rank, with arguments that Communicator has checked and that outlive the
/// task. A task is done when this rank's part is complete: its buffers may be read and written
/// again. It never blocks: operations of other groups go on while it waits, and the abort signal or
/// the deadline of `wait` ends it by an exception.
class Backend {
 public:
  virtual ~Backend() = default;  // frees; never communicates

  virtual const char* name() const noexcept = 0;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Where the memory lies that operations take and allocate() gives.
  virtual Device device() const noexcept { return {}; }
  /// Whether operations may run on any thread, one at a time still: what calls MPI may not.
  virtual bool any_thread() const noexcept { return false; }

  /// `memory` = zero-filled memory of this rank for reduce_parts, aligned to 64 bytes.
  virtual Task allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) = 0;
  virtual Task all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                          Wait& wait) = 0;
  virtual Task reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                            const SumPlan& plan, Wait& wait) = 0;
  /// `prepared` = a faster way to carry out this reduction again and again, or null where there is
  /// none.
  virtual Task prepare_reduce_parts(std::span<float* const> /*parts*/, float* /*out*/,
                                    std::size_t /*count*/, std::shared_ptr<const SumPlan> /*plan*/,
                                    std::shared_ptr<Prepared>& prepared, Wait& /*wait*/) {
    prepared.reset();
    co_return;
  }
  /// The same, but of the sum this rank needs only elements [edges[rank], edges[rank + 1]); what
  /// the others contain is not specified.
  virtual Task reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                              const SumPlan& plan, std::span<const std::size_t> edges,
                              Wait& wait) = 0;
  /// Elements [edges[r], edges[r + 1]) of `inout` become those of rank r, in memory of allocate().
  virtual Task all_gather_slices(float* inout, std::size_t count,
                                 std::span<const std::size_t> edges, Wait& wait) = 0;
  virtual Task all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                          Wait& wait) = 0;
  virtual Task broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) = 0;
  virtual Task barrier(Wait& wait) = 0;

  /// Communicator::take_notes(). Any thread.
  virtual std::vector<std::string> take_notes() { return {}; }

  /// Bytes sent to or stored for other ranks so far. Any thread.
  virtual std::uint64_t bytes_moved() const noexcept {
    return moved_.load(std::memory_order_relaxed);
  }

 protected:
  /// A backend calls this for what it sends or stores.
  void count_moved(std::size_t bytes) noexcept {
    moved_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> moved_{0};
};

}  // namespace lockstep
