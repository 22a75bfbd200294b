// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "collectives/mpi/combine.h"
#include "collectives/mpi/mpi_transfers.h"

namespace lockstep {

/// A group of ranks over MPI point-to-point messages. Reductions exchange slices and add them in
/// the order that was asked for, so that bits depend neither on the network nor on its timing.
class MpiBackend final : public Backend {
 public:
  /// `ranks`: the group as ranks of the communicator, in the group's order; this process is
  /// ranks[rank].
  MpiBackend(std::shared_ptr<MpiState> state, const std::vector<int>& ranks, int rank, int tag,
             Lane lane);

  const char* name() const noexcept override { return "mpi"; }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

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
  struct Slice {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  struct Reduction;

  void send(int peer, const std::byte* data, std::size_t bytes);
  Task reduce(Reduction job, Wait& wait);
  Task reduce_whole(const Reduction& job, Wait& wait);
  Reduction reduction_by(std::span<float* const> parts, float* out, std::size_t count,
                         const SumPlan& plan) const;
  void exchange_slices(const Reduction& job, std::size_t piece);
  void add_own_slice(const Reduction& job, std::size_t piece);
  void spread_slices(const Reduction& job, std::size_t piece);
  /// After a spread in another type than f32: takes what came.
  void widen_spread(const Reduction& job, std::size_t piece);
  /// Writes these f32 elements in `type` to `memory` from `used` on, which has room for them.
  static const std::byte* narrowed(const std::byte* data, std::size_t count, DType type,
                                   std::vector<std::byte>& memory, std::size_t& used);
  /// Where the slices begin that each rank adds up, and the end.
  std::vector<std::size_t> even_edges(std::size_t count) const;

  int rank_;
  int size_;
  MpiTransfers transfers_;
  // Kept between operations.
  std::vector<std::byte> scratch_;        // parts that others sent
  std::vector<std::byte> wide_;           // the same in f32, where they came in another type
  std::vector<std::byte> outgoing_;       // own parts that travel in another type
  std::vector<std::byte> outgoing_sum_;   // own slice of the sum, likewise
  std::vector<std::byte> incoming_sums_;  // those of others
};

}  // namespace lockstep
