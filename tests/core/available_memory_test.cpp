// SPDX-License-Identifier: Apache-2.0
#include "core/available_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/scratch.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// A machine of 8 GiB, of which 4 are available.
class Machine {
 public:
  Machine() {
    write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapFree: 0 kB\n");
  }

  void write(const std::string& path, const std::string& text) const {
    const fs::path file = folder_.path() / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<std::uint64_t> available() const { return available_memory(folder_.path()); }

 private:
  testing_support::ScratchFolder folder_;
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(AvailableMemory, IsTheMachinesWithItsSwapWhereNoGroupLimitsIt) {
  const Machine machine;
  EXPECT_EQ(machine.available(), 4096 * kMiB);
  machine.write("proc/meminfo", "MemAvailable: 1024 kB\nSwapFree: 2048 kB\n");
  EXPECT_EQ(machine.available(), 3 * kMiB);
}

TEST(AvailableMemory, IsWhatAGroupOfVersion2Leaves) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/step/memory.current", "62914560\n");
  EXPECT_EQ(machine.available(), 40 * kMiB);
  machine.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(machine.available(), 4096 * kMiB);
}

TEST(AvailableMemory, CountsTheGroupsAboveToo) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/step/memory.current", "0\n");
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.current", "94371840\n");
  EXPECT_EQ(machine.available(), 10 * kMiB);
}

TEST(AvailableMemory, CountsCachedFilesAsAvailable) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job\n");
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.current", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.stat",
                "anon 1\ninactive_file 20971520\nactive_file 10485760\n");
  EXPECT_EQ(machine.available(), 30 * kMiB);
}

TEST(AvailableMemory, IsWhatAGroupOfVersion1Leaves) {
  const Machine machine;
  machine.write("proc/self/cgroup", "5:cpu,memory:/docker/abc\n1:cpuset:/\n");
  // In a container the path is the host's, the folder its own.
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n");
  machine.write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1048576\n");
  EXPECT_EQ(machine.available(), kMiB);
}

TEST(AvailableMemory, IsNothingWhereTheSystemDoesNotSay) {
  const testing_support::ScratchFolder folder;
  EXPECT_FALSE(available_memory(folder.path()));
}

}  // namespace
}  // namespace lockstep
