// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/collectives/communicator.h"
#include "lockstep/core/parameter.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"
#include "lockstep/optim/parameter_slice.h"

namespace lockstep::optim {

/// ZeRO stage 1 (Rajbhandari et al., 2020, section 5.1): every data-parallel rank updates its share
/// of each bucket, keeps optimizer state for that alone, and gets the other weights from their
/// owners. Shares are whole blocks, so that sums by block have the same bits as without shards.
///
/// Borrows communicator and parameters, which must outlive it. One thread.
class Shards {
 public:
  /// `plan`: of the reducer, which must scatter (ReducerOptions::scatter).
  Shards(Communicator& data, const Parameters& parameters, const BucketPlan& plan);
  ~Shards();  // values that are still on their way stay away
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  /// What this rank updates.
  ParameterSlices slices() const;

  /// This rank's share of each bucket, in arena elements.
  struct Share {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  const std::vector<Share>& own() const noexcept { return own_; }

  /// Numbers by arena block: those of this rank's blocks become known to all. Collective; queued,
  /// `by_block` must outlive the work.
  void gather(Stream& compute, std::span<double> by_block);

  /// Begins to give all ranks all weights, as their owners have them when the work queued before is
  /// done: bucket by bucket, that of the first layers first. Whoever then asks for a parameter's
  /// value() has the rest of its bucket queued on `compute`, so that a forward pass begins before
  /// all is there. Goes through `arena` (that of the reducer), whose gradients are then gone;
  /// settle() must come before they are written again. Collective.
  void gather_weights(Stream& compute, const Tensor& arena);
  /// Queues the rest of every bucket that is still on its way: what is queued behind it sees all
  /// weights, also through tensors that were bound before.
  void settle();

 private:
  /// A bucket of weights that is on its way.
  struct Arrival {
    Work work;
    Stream* compute;
    Tensor arena;
  };
  void settle(std::size_t bucket);
  /// visit(place in gathered_, number of the block) for every block of a rank.
  template <typename Visit>
  void each_block(int rank, const Visit& visit) const;

  Communicator& data_;
  Parameters parameters_;
  BucketPlan plan_;
  std::vector<std::vector<std::int64_t>> edges_;  // by bucket, from its beginning
  std::vector<Share> own_;
  std::vector<std::optional<Arrival>> arrivals_;  // by bucket
  Tensor given_;                                  // for gather()
  Tensor gathered_;
};

}  // namespace lockstep::optim
