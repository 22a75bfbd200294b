// SPDX-License-Identifier: Apache-2.0
// The fake NCCL between processes.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/fakes/nccl_processes.h"
#include "tests/fakes/nccl_ranks.h"

extern char** environ;

namespace lockstep::fake {
namespace {

// Processes are started anew, not forked: a copy of this one would have no workers.
std::string hex_of(const ncclUniqueId& id) {
  std::string text;
  char digits[3];
  for (const char byte : id.internal) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte) & 0xFFU);
    text += digits;
  }
  return text;
}

pid_t start_rank(int rank, int ranks, const ncclUniqueId& id, const std::string& role) {
  std::vector<std::string> words{"fakes_test",          "--rank",   std::to_string(rank),
                                 std::to_string(ranks), hex_of(id), role};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t process = 0;
  EXPECT_EQ(posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
  return process;
}

bool sums_are_right(Rank& r) {
  constexpr std::size_t kCount = 200'000;
  float* data = r.upload(std::vector<float>(kCount, static_cast<float>(r.rank + 1)));
  EXPECT_EQ(ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
  return r.download(data, kCount) ==
         std::vector<float>(kCount, static_cast<float>(r.size * (r.size + 1) / 2));
}

TEST_F(FakeNccl, TwoProcessesReduce) {
  const ncclUniqueId id = make_id();
  const pid_t peer = start_rank(1, 2, id, "reduce");
  {
    Rank mine(0, 2, id, true);
    ASSERT_EQ(mine.init, ncclSuccess);
    EXPECT_TRUE(sums_are_right(mine));
  }
  int status = -1;
  ASSERT_EQ(waitpid(peer, &status, 0), peer);
  EXPECT_EQ(status, 0);
}

TEST_F(FakeNccl, AKilledProcessIsOneThatDoesNotArrive) {
  const ncclUniqueId id = make_id();
  const pid_t peer = start_rank(1, 2, id, "wait");
  Rank mine(0, 2, id, true);
  ASSERT_EQ(mine.init, ncclSuccess);
  float* data = mine.upload<float>({1.0F});
  ASSERT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, mine.comm, mine.stream),
            ncclSuccess);
  ASSERT_EQ(kill(peer, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(peer, &status, 0), peer);
  EXPECT_EQ(cudaStreamQuery(mine.stream), cudaErrorNotReady);
  EXPECT_EQ(ncclCommAbort(std::exchange(mine.comm, nullptr)), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(mine.stream), cudaSuccess);
}

}  // namespace

int run_rank(int argc, char** argv) {
  if (argc != 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test ends before it ends this
  ncclUniqueId id{};
  const std::string hex = argv[2];
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  Rank rank(std::atoi(argv[0]), std::atoi(argv[1]), id, true);
  if (rank.init != ncclSuccess) return 3;
  if (std::string(argv[3]) == "wait") pause();  // to be killed
  return sums_are_right(rank) && !testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace lockstep::fake
