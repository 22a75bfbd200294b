// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// How many ranks there are along each axis.
struct MeshShape {
  int data = 0;  // 0: as many as `tensor` leaves
  int tensor = 1;
};

/// The ranks of a job as data × tensor: rank = data_rank · tensor + tensor_rank, so that
/// neighbours, mostly on one host, share a tensor group.
class Mesh {
 public:
  /// Collective over the job; tensors of its groups lie on `device` of each rank. Throws
  /// ConfigError if data · tensor is not the number of ranks.
  Mesh(ProcessGroup& job, MeshShape shape, Device device = {});

  const MeshShape& shape() const noexcept { return shape_; }
  int data_rank() const noexcept;
  int tensor_rank() const noexcept;
  /// Ranks that hold the same weights and see other samples.
  Communicator& data() noexcept { return *data_; }
  /// Ranks that share each layer and see the same samples.
  Communicator& tensor() noexcept { return *tensor_; }

 private:
  MeshShape shape_;
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> tensor_;
};

/// `shape` for `ranks` ranks, with data filled in. Throws as Mesh does.
MeshShape complete_shape(MeshShape shape, int ranks);

}  // namespace lockstep
