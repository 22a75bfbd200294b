// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// A reduce_parts that is carried out again and again, with everything checked, and agreed on by
/// the ranks, once: from Communicator::prepare_reduce_parts. (Compare MPI_Allreduce_init of MPI 4.)
///
/// Owner, move-only; keeps its tensors, and must not outlive its communicator.
class PreparedReduction {
 public:
  PreparedReduction(PreparedReduction&&) noexcept;
  PreparedReduction& operator=(PreparedReduction&&) noexcept;
  ~PreparedReduction();  // frees; never communicates

  /// Communicator::reduce_parts once more, of what the parts contain after `ready`. Collective, in
  /// one order with all other operations of the communicator.
  Work start(const Event& ready = {});

 private:
  friend class Communicator;
  struct State;
  explicit PreparedReduction(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
