// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/collectives/mesh.h"
#include "support/mpi_main.h"
#include "support/on_device.h"

namespace lockstep {
namespace {

using testing_support::job;

std::int64_t sum_of_ranks(Communicator& group) {
  const Tensor mine(Device{}, {1}, DType::i64);
  *mine.as<std::int64_t>() = job().rank();
  const Tensor sum = testing_support::on_device(group.device(), mine);
  group.all_reduce(sum, ReduceOp::sum).wait();
  return *testing_support::on_host(sum).as<std::int64_t>();
}

TEST(Mesh, PutsNeighboursIntoOneTensorGroup) {
  const int ranks = job().size();
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0) continue;
    Mesh mesh(job(), {.data = 0, .tensor = tensor}, testing_support::device());
    EXPECT_EQ(mesh.shape().data, ranks / tensor);
    EXPECT_EQ(mesh.data_rank() * tensor + mesh.tensor_rank(), job().rank());
    EXPECT_EQ(mesh.data().size(), ranks / tensor);
    EXPECT_EQ(mesh.tensor().size(), tensor);
    // Both groups at work at once, then their members by the sum of their ranks.
    const std::int64_t data_sum = sum_of_ranks(mesh.data());
    const std::int64_t tensor_sum = sum_of_ranks(mesh.tensor());
    std::int64_t expected_data = 0;
    for (int d = 0; d < ranks / tensor; ++d) expected_data += d * tensor + mesh.tensor_rank();
    std::int64_t expected_tensor = 0;
    for (int t = 0; t < tensor; ++t) expected_tensor += mesh.data_rank() * tensor + t;
    EXPECT_EQ(data_sum, expected_data);
    EXPECT_EQ(tensor_sum, expected_tensor);
  }
}

TEST(Mesh, RefusesAShapeThatDoesNotFitOnEveryRank) {
  EXPECT_THROW(Mesh(job(), MeshShape{job().size() + 1, 1}), ConfigError);
}

}  // namespace
}  // namespace lockstep
