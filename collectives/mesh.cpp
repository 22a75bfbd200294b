// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/mesh.h"

#include <cstdint>
#include <string>

namespace lockstep {

MeshShape complete_shape(MeshShape shape, int ranks) {
  if (shape.tensor > 0 && shape.data == 0) shape.data = ranks / shape.tensor;
  const bool fits =
      shape.data > 0 && shape.tensor > 0 && std::int64_t{shape.data} * shape.tensor == ranks;
  if (!fits) {
    throw ConfigError("mesh: data " + std::to_string(shape.data) + " × tensor " +
                          std::to_string(shape.tensor) + " is not the number of ranks, " +
                          std::to_string(ranks),
                      "set mesh.data and mesh.tensor so that their product is the number of ranks, "
                      "or leave mesh.data out");
  }
  return shape;
}

Mesh::Mesh(ProcessGroup& job, MeshShape shape, Device device)
    : shape_(complete_shape(shape, job.size())),
      data_(job.split("data", job.rank() % shape_.tensor, job.rank() / shape_.tensor, Lane::data,
                      device)),
      tensor_(job.split("tensor", job.rank() / shape_.tensor, job.rank() % shape_.tensor,
                        Lane::tensor, device)) {}

int Mesh::data_rank() const noexcept { return data_->rank(); }
int Mesh::tensor_rank() const noexcept { return tensor_->rank(); }

}  // namespace lockstep
