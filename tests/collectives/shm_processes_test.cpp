// SPDX-License-Identifier: Apache-2.0
// Shared memory between processes, as in a job.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/shm_ranks.h"

namespace lockstep {
namespace {

TEST(ShmProcesses, AddTheirGradientsInPlace) {
  const auto statuses = testing_support::run_forked(3, [](Communicator& group) {
    constexpr std::int64_t kSize = 100'003;
    const Tensor memory = group.allocate(kSize, DType::f32);
    for (std::int64_t i = 0; i < kSize; ++i) {
      memory.as<float>()[i] = static_cast<float>(i * (group.rank() + 1));
    }
    const auto plan = std::make_shared<SumPlan>(ordered_plan(group.size()));
    for (int round = 0; round < 3; ++round) group.reduce_parts({memory}, memory, plan).wait();
    for (std::int64_t i = 0; i < kSize; ++i) {
      const auto x = static_cast<float>(i);
      const float first = x + static_cast<float>(2 * i) + static_cast<float>(3 * i);
      const float second = first + first + first;
      if (memory.as<float>()[i] != second + second + second) return 1;
    }
    return 0;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
}

TEST(ShmProcesses, HoldMoreMemoryThanASmallDevShm) {
  const auto statuses = testing_support::run_forked(2, [](Communicator& group) {
    constexpr std::int64_t kSize = std::int64_t{24} << 20;  // 96 MiB a rank
    const Tensor memory = group.allocate(kSize, DType::f32);
    for (std::int64_t i = 0; i < kSize; i += 1024) memory.as<float>()[i] = 1.0F;
    group.all_reduce(memory, ReduceOp::sum).wait();
    for (std::int64_t i = 0; i < kSize; i += 1024) {
      if (memory.as<float>()[i] != 2.0F) return 1;
    }
    return 0;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(ShmProcesses, NameAPeerThatWasKilledAtTheirDeadline) {
  const auto statuses = testing_support::run_forked(
      2,
      [](Communicator& group) {
        group.barrier().wait();
        if (group.rank() == 1) std::raise(SIGKILL);
        try {
          group
              .all_gather(Tensor::zeros(Device{}, {1}, DType::u8),
                          Tensor::zeros(Device{}, {2}, DType::u8))
              .wait();
          return 1;
        } catch (const CommError& error) {
          const std::string what = error.what();
          return what.find("rank 1 (last began barrier #1)") == std::string::npos ? 2 : 0;
        }
      },
      {.name = "world", .timeout = std::chrono::milliseconds(300)});
  EXPECT_EQ(statuses, (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(ShmProcesses, GiveTheMemoryOfATensorBack) {
  auto abort = std::make_shared<AbortSignal>();
  testing_support::run_group(
      testing_support::make_shm_group(1, {}, abort), abort, [](Communicator& group) {
        constexpr std::int64_t kSize = std::int64_t{16} << 20;  // 64 MiB
        // Address space grows, memory must not.
        const auto shared_pages = [] {
          long total = 0;
          long resident = 0;
          long shared = 0;
          std::FILE* file = std::fopen("/proc/self/statm", "r");
          if (std::fscanf(file, "%ld %ld %ld", &total, &resident, &shared) != 3) shared = -1;
          std::fclose(file);
          return shared;
        };
        const long before = shared_pages();
        for (int round = 0; round < 4; ++round) {
          const Tensor memory = group.allocate(kSize, DType::f32);
          for (std::int64_t i = 0; i < kSize; i += 1024) memory.as<float>()[i] = 1.0F;
        }
        EXPECT_LT((shared_pages() - before) * 4, 100 * 1024) << "KiB stay after 4 x 64 MiB";
      });
}

}  // namespace
}  // namespace lockstep
