// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
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

TEST(ProcessGroup, RefusesDevicesThatNothingMovesBetweenOnAllRanks) {
  ProcessGroup& group = job();
  if (group.size() == 1) return;  // one rank alone is a group on any device
  const Device gpu{.kind = DeviceKind::cuda, .index = 0};
  const auto refusal = [&](Device device) -> std::string {
    try {
      group.split("gpus", 0, group.rank(), Lane::data, device);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  };
  const std::string mixed = refusal(group.rank() == 1 ? gpu : Device{});
  EXPECT_THAT(mixed, HasSubstr("group gpus: tensors of rank 0 on cpu, of rank 1 on cuda"));
  EXPECT_TRUE(same_on_all_ranks(mixed));
  const std::string all = refusal(gpu);
  EXPECT_THAT(all, HasSubstr("several ranks with tensors on cuda"));
  EXPECT_TRUE(same_on_all_ranks(all));
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
