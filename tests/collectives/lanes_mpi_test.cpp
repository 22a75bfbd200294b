// SPDX-License-Identifier: Apache-2.0
// Groups of one job that are under way at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "support/mpi_main.h"
#include "support/on_device.h"

namespace lockstep {
namespace {

using testing_support::device;
using testing_support::job;
using testing_support::on_device;
using testing_support::on_host;

Tensor filled(std::int64_t elements, float with) {
  const Tensor tensor(Device{}, {elements}, DType::f32);
  for (std::int64_t i = 0; i < elements; ++i) tensor.as<float>()[i] = with;
  return tensor;
}

bool all_are(const Tensor& there, float wanted) {
  const Tensor tensor = on_host(there);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.as<float>()[i] != wanted) return false;
  }
  return true;
}

// Ranks get to the groups in different orders: with one queue for all, each would wait for another.
TEST(Lanes, GroupsNeedNoCommonOrder) {
  const auto first = job().split("first", 0, job().rank(), Lane::data, device());
  const auto second = job().split("second", 0, job().rank(), Lane::tensor, device());
  for (int round = 0; round < 10; ++round) {
    const Tensor a = on_device(device(), filled(100'003, 1.0F));
    const Tensor b = on_device(device(), filled(50'001, 2.0F));
    const bool odd = (job().rank() + round) % 2 == 1;
    std::vector<Work> works;
    if (odd) works.push_back(first->all_reduce(a, ReduceOp::sum));
    works.push_back(second->all_reduce(b, ReduceOp::sum));
    works.back().wait();
    if (!odd) works.push_back(first->all_reduce(a, ReduceOp::sum));
    for (const Work& work : works) work.wait();
    EXPECT_TRUE(all_are(a, static_cast<float>(job().size())));
    EXPECT_TRUE(all_are(b, 2.0F * static_cast<float>(job().size())));
  }
}

TEST(Lanes, ASmallOperationPassesALargeOne) {
  if (testing_support::backend() == "nccl") GTEST_SKIP() << "of groups on the CPU";
  const auto data = job().split("data", 0, job().rank(), Lane::data);
  const auto tensor = job().split("tensor", 0, job().rank(), Lane::tensor);
  const Tensor large = filled(40'000'000, 1.0F);
  const Tensor small = filled(16, 1.0F);
  data->barrier().wait();
  const Work slow = data->all_reduce(large, ReduceOp::sum);
  const Work fast = tensor->all_reduce(small, ReduceOp::sum);
  // As it ends, because this thread may be kept from looking for a while.
  std::atomic<bool> passed{false};
  fast.event().on_done([&] { passed = !slow.done() || job().size() == 1; });
  fast.wait();
  slow.wait();
  EXPECT_TRUE(passed);
  EXPECT_TRUE(all_are(large, static_cast<float>(job().size())));
  EXPECT_TRUE(all_are(small, static_cast<float>(job().size())));
}

}  // namespace
}  // namespace lockstep
