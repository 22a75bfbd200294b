// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/handshake.h"
#include "support/mpi_main.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::job;
using testing_support::same_on_all_ranks;

// Empty, tiny, just over what one exchange carries, odd, several segments and pieces.
const std::vector<std::int64_t> kSizes = {0, 1, 15, 4096, 4097, 262145, 3000001};

// A value of many bits that every rank can compute for every other: sums of it depend on the order.
float value(int part, std::int64_t i) {
  const auto bits = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(part);
  return std::ldexp(1.0F + static_cast<float>(bits % 8388593U) / 8388608.0F,
                    static_cast<int>(bits % 23U) - 11) *
         ((bits & 64U) != 0 ? 1.0F : -1.0F);
}

void fill(const Tensor& tensor, int part) {
  float* data = tensor.as<float>();
  for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = value(part, i);
}

// The first element that differs in any bit, or -1.
std::int64_t first_difference(const float* got, const std::vector<float>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

std::vector<float> carried_out(const SumPlan& plan, std::int64_t elements) {
  int parts = 0;
  for (const int each : plan.parts_of_rank) parts += each;
  std::vector<float> sums(static_cast<std::size_t>(elements));
  std::vector<float> now(static_cast<std::size_t>(parts));
  for (std::int64_t i = 0; i < elements; ++i) {
    for (int part = 0; part < parts; ++part) now[static_cast<std::size_t>(part)] = value(part, i);
    for (const SumPlan::Add& add : plan.adds) {
      now[static_cast<std::size_t>(add.into)] += now[static_cast<std::size_t>(add.from)];
    }
    sums[static_cast<std::size_t>(i)] = now[static_cast<std::size_t>(plan.result)];
  }
  return sums;
}

TEST(ProcessGroup, KnowsWhereEveryRankIs) {
  ProcessGroup& group = job();
  EXPECT_EQ(group.hosts().size(), static_cast<std::size_t>(group.size()));
  EXPECT_EQ(group.process_ids()[static_cast<std::size_t>(group.rank())], getpid());
  EXPECT_EQ(group.local_rank(), group.rank()) << "all ranks of the test are on one host";
  EXPECT_EQ(group.world().rank(), group.rank());
  EXPECT_EQ(group.world().size(), group.size());
  EXPECT_FALSE(group.abort_signal()->raised());
  std::string ids;
  for (const int id : group.process_ids()) ids += std::to_string(id) + " ";
  EXPECT_TRUE(same_on_all_ranks(ids));
}

TEST(ProcessGroup, UsesTheBackendThatTheJobIsFor) {
  const std::string name = job().world().backend_name();
  if (job().size() == 1) {
    EXPECT_EQ(name, "local");
  } else {
    EXPECT_TRUE(name == "shm" || name == "mpi") << name;
  }
  EXPECT_TRUE(same_on_all_ranks(name));
}

TEST(ProcessGroup, ReducesInRankOrderToTheSameBitsEverywhere) {
  Communicator& world = job().world();
  const SumPlan plan = ordered_plan(world.size());
  for (const std::int64_t size : kSizes) {
    const Tensor data(Device{}, {size}, DType::f32);
    fill(data, world.rank());
    world.all_reduce(data, ReduceOp::sum).wait();
    EXPECT_EQ(first_difference(data.as<float>(), carried_out(plan, size)), -1) << size;
  }
}

TEST(ProcessGroup, ReducesOtherTypesAndOperations) {
  Communicator& world = job().world();
  const int ranks = world.size();
  for (const std::int64_t size : {std::int64_t{3}, std::int64_t{50001}}) {
    const Tensor whole(Device{}, {size}, DType::i64);
    const Tensor real(Device{}, {size}, DType::f64);
    for (std::int64_t i = 0; i < size; ++i) {
      whole.as<std::int64_t>()[i] = (world.rank() + i) % ranks - (std::int64_t{1} << 40);
      real.as<double>()[i] = static_cast<double>((world.rank() + i) % ranks) + 0.25;
    }
    world.all_reduce(whole, ReduceOp::min).wait();
    world.all_reduce(real, ReduceOp::max).wait();
    for (std::int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(whole.as<std::int64_t>()[i], -(std::int64_t{1} << 40));
      ASSERT_EQ(real.as<double>()[i], ranks - 1 + 0.25);
    }
  }
}

TEST(ProcessGroup, CarriesOutASumPlanToTheBit) {
  Communicator& world = job().world();
  for (const std::int64_t leaves :
       {std::int64_t{world.size()}, std::int64_t{7}, std::int64_t{16}}) {
    if (leaves < world.size()) continue;
    const auto plan = std::make_shared<const SumPlan>(invariant_plan(world.size(), leaves));
    int first = 0;
    for (int rank = 0; rank < world.rank(); ++rank) {
      first += plan->parts_of_rank[static_cast<std::size_t>(rank)];
    }
    for (const std::int64_t size : {std::int64_t{4096}, std::int64_t{1000003}}) {
      const auto own =
          static_cast<std::size_t>(plan->parts_of_rank[static_cast<std::size_t>(world.rank())]);
      // All ranks ask for the same memory, also those that give fewer parts.
      std::vector<Tensor> parts;
      for (int p = 0; p < *std::max_element(plan->parts_of_rank.begin(), plan->parts_of_rank.end());
           ++p) {
        parts.push_back(world.allocate(size, DType::f32));
      }
      parts.resize(own);
      for (std::size_t p = 0; p < own; ++p) fill(parts[p], first + static_cast<int>(p));
      const Tensor out = parts.back();
      world.reduce_parts(parts, out, plan).wait();
      EXPECT_EQ(first_difference(out.as<float>(), carried_out(*plan, size)), -1)
          << leaves << " leaves, " << size << " elements";
    }
  }
}

TEST(ProcessGroup, GathersInRankOrder) {
  Communicator& world = job().world();
  for (const std::int64_t size : kSizes) {
    const Tensor mine(Device{}, {size}, DType::f32);
    const Tensor all(Device{}, {size * world.size()}, DType::f32);
    fill(mine, world.rank());
    world.all_gather(mine, all).wait();
    for (int rank = 0; rank < world.size(); ++rank) {
      std::vector<float> expected;
      for (std::int64_t i = 0; i < size; ++i) expected.push_back(value(rank, i));
      EXPECT_EQ(first_difference(all.as<float>() + rank * size, expected), -1) << rank;
    }
  }
}

TEST(ProcessGroup, BroadcastsFromEveryRoot) {
  Communicator& world = job().world();
  for (int root = 0; root < world.size(); ++root) {
    for (const std::int64_t size : kSizes) {
      const Tensor data = Tensor::zeros(Device{}, {size}, DType::f32);
      if (world.rank() == root) fill(data, root);
      world.broadcast(data, root).wait();
      std::vector<float> expected;
      for (std::int64_t i = 0; i < size; ++i) expected.push_back(value(root, i));
      EXPECT_EQ(first_difference(data.as<float>(), expected), -1) << root;
    }
  }
}

TEST(ProcessGroup, NoRankPassesABarrierBeforeAllHaveEntered) {
  Communicator& world = job().world();
  using Clock = std::chrono::steady_clock;
  for (int late = 0; late < world.size(); ++late) {
    world.barrier().wait();
    if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::int64_t entered = Clock::now().time_since_epoch().count();
    world.barrier().wait();
    const std::int64_t passed = Clock::now().time_since_epoch().count();
    const Tensor last(Device{}, {1}, DType::i64);
    *last.as<std::int64_t>() = entered;
    world.all_reduce(last, ReduceOp::max).wait();
    // One host, one monotonic clock.
    EXPECT_GE(passed, *last.as<std::int64_t>());
  }
}

TEST(ProcessGroup, KeepsManyOperationsInOrder) {
  Communicator& world = job().world();
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(Tensor::zeros(Device{}, {i % 7 + 1}, DType::i64));
    *tensors.back().as<std::int64_t>() = i;
    works.push_back(world.all_reduce(tensors.back(), ReduceOp::sum));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    ASSERT_EQ(*tensors[i].as<std::int64_t>(), static_cast<std::int64_t>(i) * world.size());
  }
}

TEST(ProcessGroup, SplitsByColorAndOrdersByKey) {
  ProcessGroup& group = job();
  const auto half = group.split("half", group.rank() % 2, -group.rank());
  const int expected_size = (group.size() + 1 - group.rank() % 2) / 2;
  ASSERT_EQ(half->size(), expected_size);
  const auto members = gather_text(*half, std::to_string(group.rank()));
  for (std::size_t i = 1; i < members.size(); ++i) {
    EXPECT_GT(std::stoi(members[i - 1]), std::stoi(members[i]));
    EXPECT_EQ(std::stoi(members[i]) % 2, group.rank() % 2);
  }
  EXPECT_EQ(members[static_cast<std::size_t>(half->rank())], std::to_string(group.rank()));
}

TEST(ProcessGroup, RefusesRanksThatDifferOnAllOfThem) {
  ProcessGroup& group = job();
  const int odd = group.size() - 1;
  const std::vector<HandshakeField> fields = {{"seed", group.rank() == odd ? "8" : "7"}};
  if (odd == 0) {
    EXPECT_NO_THROW(handshake(group.world(), fields));
    return;
  }
  try {
    handshake(group.world(), fields);
    ADD_FAILURE() << "seeds 7 and 8 were accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("seed differs: rank 0 has \"7\", rank " +
                                        std::to_string(odd) + " has \"8\""));
    EXPECT_EQ(error.outcome(), Outcome::config);
    EXPECT_TRUE(same_on_all_ranks(error.what()));
  }
}

}  // namespace
}  // namespace lockstep
