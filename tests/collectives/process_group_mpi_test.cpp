// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "collectives/abort_signal.h"
#include "core/cuda/device.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/handshake.h"
#include "support/mpi_main.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::job;
using testing_support::same_on_all_ranks;

TEST(ProcessGroup, KnowsWhereEveryRankIs) {
  ProcessGroup& group = job();
  EXPECT_EQ(group.hosts().size(), static_cast<std::size_t>(group.size()));
  EXPECT_EQ(group.process_ids()[static_cast<std::size_t>(group.rank())], getpid());
  const auto own = group.hosts().begin() + group.rank();
  EXPECT_EQ(group.local_rank(), std::count(group.hosts().begin(), own, *own));
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
    EXPECT_TRUE(name == "shm" || name == "mpi" || name == "shm+mpi") << name;
  }
  EXPECT_TRUE(same_on_all_ranks(name));
}

TEST(ProcessGroup, SplitsByColorAndOrdersByKey) {
  ProcessGroup& group = job();
  if (testing_support::backend() == "nccl") return;  // texts are gathered on the CPU
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

constexpr Device kGpu{.kind = DeviceKind::cuda, .index = 0};

// The outcome and the text of what a split into one group throws.
std::string refusal(Device device) {
  try {
    job().split("gpus", 0, job().rank(), Lane::data, device);
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.outcome())) + ": " + error.what();
  }
  return "none";
}

TEST(ProcessGroup, RefusesMixedDevicesOnAllRanks) {
  if (job().size() == 1) return;  // one rank alone is a group on any device
  const std::string mixed = refusal(job().rank() == 1 ? kGpu : Device{});
  EXPECT_THAT(mixed, HasSubstr("78: group gpus: tensors of rank 0 on cpu, of rank 1 on cuda"));
  EXPECT_TRUE(same_on_all_ranks(mixed));
}

TEST(ProcessGroup, RefusesOneGpuForTwoRanksOnAllRanks) {
  if (job().size() == 1) return;
  const std::string all = refusal(kGpu);
  EXPECT_TRUE(same_on_all_ranks(all));
  if (testing_support::backend() == "shm" || testing_support::backend() == "mpi") {
    EXPECT_THAT(all, HasSubstr("78: group gpus: backend " + testing_support::backend() +
                               " moves nothing between tensors on cuda"));
  } else if (cuda::device_count() > 0) {
    EXPECT_THAT(all, AllOf(HasSubstr("78: rank 0 and rank "), HasSubstr("are on one GPU")));
  } else {
    EXPECT_THAT(all, HasSubstr("79: "));  // no NCCL, or no driver
  }
}

TEST(ProcessGroup, UsesNcclBetweenGpus) {
  const Device gpu{.kind = DeviceKind::cuda, .index = job().local_rank()};
  if (testing_support::device() != gpu) return;
  const auto group = job().split("gpus", 0, job().rank(), Lane::data, gpu);
  EXPECT_EQ(std::string(group->backend_name()), job().size() == 1 ? "local" : "nccl");
  EXPECT_EQ(group->device(), gpu);
  const auto alone = job().split("alone", job().rank(), 0, Lane::data, gpu);
  EXPECT_EQ(std::string(alone->backend_name()), "local");
}

TEST(ProcessGroup, RefusesNcclForTensorsOnTheCpu) {
  if (testing_support::backend() != "nccl") return;
  const std::string cpu = refusal(Device{});
  EXPECT_THAT(cpu, HasSubstr("78: group gpus: backend nccl moves nothing between tensors on cpu"));
  EXPECT_TRUE(same_on_all_ranks(cpu));
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
