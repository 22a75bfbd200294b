// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "collectives/mpi/mpi_backend.h"
#include "collectives/shared_memory/shared_memory_backend.h"

namespace lockstep {

/// The parts that a group over several hosts consists of.
struct TwoLevels {
  std::unique_ptr<MpiBackend> all;                           // every rank of the group
  std::unique_ptr<shared_memory::SharedMemoryBackend> host;  // the ranks of this host
  std::unique_ptr<MpiBackend> across;  // the ranks with this one's place on every host
  std::vector<int> host_of_rank;       // by rank of the group
};

/// A group of several hosts with equally many ranks each: what is large is first added up within
/// the host, in shared memory, and then over the network, where each rank of a host carries a slice
/// of its own. So a host sends as much as one rank would. The rest goes over the network at once.
class TwoLevelBackend final : public Backend {
 public:
  explicit TwoLevelBackend(TwoLevels levels);

  const char* name() const noexcept override { return "shm+mpi"; }
  int rank() const noexcept override { return levels_.all->rank(); }
  int size() const noexcept override { return levels_.all->size(); }

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

  std::uint64_t bytes_moved() const noexcept override;

 private:
  TwoLevels levels_;
  SumPlan host_first_;  // all ranks of a host, then the hosts
};

}  // namespace lockstep
