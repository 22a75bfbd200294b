// SPDX-License-Identifier: Apache-2.0
// The fake NCCL's own tests: ranks as threads, and as processes.
#include "tests/fakes/nccl_test.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/elements.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_faults.h"

extern char** environ;

// Newer than some headers that this is built with.
extern "C" ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);

namespace lockstep::fake {
namespace {

using std::chrono::milliseconds;

ncclResult_t async_error(ncclComm_t comm) {
  ncclResult_t error = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  return error;
}

ncclResult_t wait_ready(ncclComm_t comm) {
  ncclResult_t error = ncclInProgress;
  while ((error = async_error(comm)) == ncclInProgress) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return error;
}

ncclResult_t wait_error(ncclComm_t comm) {
  ncclResult_t error = ncclSuccess;
  while ((error = async_error(comm)) == ncclSuccess || error == ncclInProgress) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return error;
}

// One rank: a device, a stream, memory and a communicator.
class Rank {
 public:
  Rank(int its_rank, int ranks, const ncclUniqueId& id, bool blocking, int device = -1)
      : rank(its_rank), size(ranks) {
    EXPECT_EQ(cudaSetDevice(device < 0 ? rank : device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    init = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  }
  ~Rank() {
    if (comm != nullptr) {
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    for (void* block : blocks_) EXPECT_EQ(cudaFree(block), cudaSuccess);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  template <typename T>
  T* upload(const std::vector<T>& values) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, values.size() * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
    blocks_.push_back(data);
    return static_cast<T*>(data);
  }
  template <typename T>
  std::vector<T> download(const T* data, std::size_t n) {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<T> values(n);
    EXPECT_EQ(cudaMemcpy(values.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

  int rank;
  int size;
  ncclResult_t init = ncclInternalError;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

 private:
  std::vector<void*> blocks_;
};

ncclUniqueId make_id() {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

void run_ranks(int ranks, const std::function<void(Rank&)>& body, bool blocking = true) {
  const ncclUniqueId id = make_id();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(r, ranks, id, blocking);
      EXPECT_EQ(rank.init, blocking ? ncclSuccess : ncclInProgress);
      EXPECT_EQ(wait_ready(rank.comm), ncclSuccess);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class FakeNccl : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_nccl_faults("");
    set_cuda_faults("");
  }
  void TearDown() override { set_nccl_faults(""); }
};
using FakeNcclDeathTest = FakeNccl;

TEST_F(FakeNccl, AllReduceSumsOverTwoAndThreeThreads) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](Rank& r) {
      constexpr std::size_t kCount = 300'001;  // more than a piece
      std::vector<float> mine(kCount);
      std::iota(mine.begin(), mine.end(), static_cast<float>(r.rank));
      float* data = r.upload(mine);
      ASSERT_EQ(ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, r.comm, r.stream),
                ncclSuccess);
      const auto sums = r.download(data, kCount);
      const auto others = static_cast<float>(r.size * (r.size - 1) / 2);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(sums[i], static_cast<float>(i) * static_cast<float>(r.size) + others);
      }
    });
  }
}

TEST_F(FakeNccl, EveryTypeIsReduced) {
  run_ranks(2, [](Rank& r) {
    const auto check = [&](auto one, auto two, ncclDataType_t type, ncclRedOp_t op, auto want) {
      using T = decltype(one);
      T* data = r.upload<T>({r.rank == 0 ? one : two});
      ASSERT_EQ(ncclAllReduce(data, data, 1, type, op, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(r.download(data, 1).front(), static_cast<T>(want)) << type << " " << op;
    };
    check(1.5F, -2.0F, ncclFloat32, ncclMin, -2.0F);
    check(1.5, 2.25, ncclFloat64, ncclSum, 3.75);
    check(to_bf16(1.5F), to_bf16(2.0F), ncclBfloat16, ncclSum, to_bf16(3.5F));
    check(to_f16(1.5F), to_f16(-2.0F), ncclFloat16, ncclMax, to_f16(1.5F));
    check(std::int32_t{-5}, std::int32_t{3}, ncclInt32, ncclSum, -2);
    check(std::int64_t{-5}, std::int64_t{3}, ncclInt64, ncclMax, 3);
    check(std::uint8_t{200}, std::uint8_t{3}, ncclUint8, ncclMin, 3);
    check(2.0F, 4.0F, ncclFloat32, ncclAvg, 3.0F);
  });
}

TEST_F(FakeNccl, ReduceScatterAllGatherAndBroadcast) {
  run_ranks(3, [](Rank& r) {
    constexpr std::size_t kCount = 100'003;
    const auto mine = static_cast<std::size_t>(r.rank);
    std::vector<std::int32_t> input(3 * kCount);
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<std::int32_t>(i) * (r.rank + 1);
    }
    std::int32_t* data = r.upload(input);
    std::int32_t* part = data + mine * kCount;  // in place
    ASSERT_EQ(ncclReduceScatter(data, part, kCount, ncclInt32, ncclSum, r.comm, r.stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllGather(part, data, kCount, ncclInt32, r.comm, r.stream), ncclSuccess);
    const auto sums = r.download(data, 3 * kCount);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(sums[i], static_cast<std::int32_t>(i) * 6);
    }
    std::int32_t* value = r.upload<std::int32_t>({r.rank});
    ASSERT_EQ(ncclBroadcast(value, value, 1, ncclInt32, 2, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(r.download(value, 1).front(), 2);
    std::int32_t* nothing = r.upload<std::int32_t>({0});
    EXPECT_EQ(ncclAllReduce(nothing, nothing, 0, ncclInt32, ncclSum, r.comm, r.stream),
              ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(r.comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(std::exchange(r.comm, nullptr)), ncclSuccess);
  });
}

TEST_F(FakeNccl, MessagesOfAGroupGoSideBySide) {
  run_ranks(3, [](Rank& r) {
    constexpr std::size_t kCount = 50'000;  // several pieces of a channel
    const auto ranks = static_cast<std::size_t>(r.size);
    std::vector<std::int64_t> input(ranks * kCount);
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<std::int64_t>(i) + 1'000'000 * r.rank;
    }
    std::int64_t* send = r.upload(input);
    std::int64_t* recv = r.upload(std::vector<std::int64_t>(input.size()));
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < r.size; ++peer) {  // with itself too
      const auto at = static_cast<std::size_t>(peer) * kCount;
      ASSERT_EQ(ncclSend(send + at, kCount, ncclInt64, peer, r.comm, r.stream), ncclSuccess);
      ASSERT_EQ(ncclRecv(recv + at, kCount, ncclInt64, peer, r.comm, r.stream), ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    const auto got = r.download(recv, input.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t from = i / kCount;
      const std::size_t there = static_cast<std::size_t>(r.rank) * kCount + i % kCount;
      ASSERT_EQ(got[i], static_cast<std::int64_t>(there + 1'000'000 * from));
    }
  });
}

TEST_F(FakeNccl, OneThreadDrivesTwoDevicesInGroups) {
  const ncclUniqueId id = make_id();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  Rank first(0, 2, id, true);
  Rank second(1, 2, id, true);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  std::vector<float*> data;
  for (Rank* r : {&first, &second}) {
    ASSERT_EQ(cudaSetDevice(r->rank), cudaSuccess);
    data.push_back(r->upload<float>({1.0F}));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (Rank* r : {&first, &second}) {
    float* mine = data[static_cast<std::size_t>(r->rank)];
    EXPECT_EQ(ncclAllReduce(mine, mine, 1, ncclFloat32, ncclSum, r->comm, r->stream), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(first.download(data[0], 1).front(), 2.0F);
  EXPECT_EQ(second.download(data[1], 1).front(), 2.0F);
}

TEST_F(FakeNccl, WithoutBlockingEverythingIsInProgressFirst) {
  const ncclUniqueId id = make_id();
  Rank first(0, 2, id, false);
  ASSERT_EQ(first.init, ncclInProgress);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(async_error(first.comm), ncclInProgress);
  int count = 0;
  EXPECT_EQ(ncclCommCount(first.comm, &count), ncclInvalidArgument);
  std::thread other([&] {
    Rank second(1, 2, id, false);
    EXPECT_EQ(wait_ready(second.comm), ncclSuccess);
    float* data = second.upload<float>({1.0F});
    EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, second.comm, second.stream),
              ncclInProgress);
    EXPECT_EQ(wait_ready(second.comm), ncclSuccess);
    EXPECT_EQ(second.download(data, 1).front(), 3.0F);
  });
  ASSERT_EQ(wait_ready(first.comm), ncclSuccess);
  ASSERT_EQ(ncclCommCount(first.comm, &count), ncclSuccess);
  EXPECT_EQ(count, 2);
  float* data = first.upload<float>({2.0F});
  EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, first.comm, first.stream),
            ncclInProgress);
  EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, first.comm, first.stream),
            ncclInvalidArgument);  // nobody has asked whether the first is under way
  EXPECT_EQ(wait_ready(first.comm), ncclSuccess);
  EXPECT_EQ(first.download(data, 1).front(), 3.0F);
  other.join();
}

TEST_F(FakeNccl, SplitMakesGroupsInTheOrderOfTheirKeys) {
  for (const bool blocking : {true, false}) {
    run_ranks(
        4,
        [&](Rank& r) {
          for (int round = 0; round < 2; ++round) {
            ncclComm_t half = nullptr;
            const int color = r.rank == 3 ? NCCL_SPLIT_NOCOLOR : r.rank % 2;
            const ncclResult_t made = ncclCommSplit(r.comm, color, -r.rank, &half, nullptr);
            if (color == NCCL_SPLIT_NOCOLOR) {
              EXPECT_EQ(made, blocking ? ncclSuccess : ncclInProgress);
              EXPECT_EQ(wait_ready(r.comm), ncclSuccess);
              EXPECT_EQ(half, nullptr);
              continue;
            }
            EXPECT_EQ(made, blocking ? ncclSuccess : ncclInProgress);
            ASSERT_EQ(wait_ready(half), ncclSuccess);
            int rank = -1;
            int size = -1;
            ASSERT_EQ(ncclCommUserRank(half, &rank), ncclSuccess);
            ASSERT_EQ(ncclCommCount(half, &size), ncclSuccess);
            EXPECT_EQ(size, color == 0 ? 2 : 1);
            EXPECT_EQ(rank, r.rank == 0 ? 1 : 0);
            std::int32_t* data = r.upload<std::int32_t>({r.rank});
            static_cast<void>(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, half, r.stream));
            EXPECT_EQ(wait_ready(half), ncclSuccess);
            EXPECT_EQ(r.download(data, 1).front(), color == 0 ? 2 : 1);
            EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
          }
        },
        blocking);
  }
}

TEST_F(FakeNccl, AnAbortEndsAStuckCollective) {
  set_nccl_faults("stuck@2:rank1");
  run_ranks(2, [](Rank& r) {
    float* data = r.upload<float>({1.0F});
    cudaEvent_t done = nullptr;
    ASSERT_EQ(cudaEventCreate(&done), cudaSuccess);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    }
    ASSERT_EQ(cudaEventRecord(done, r.stream), cudaSuccess);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
    EXPECT_EQ(async_error(r.comm), ncclSuccess);  // nobody notices by himself
    EXPECT_EQ(ncclCommAbort(std::exchange(r.comm, nullptr)), ncclSuccess);
    EXPECT_EQ(cudaEventSynchronize(done), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
  });
}

TEST_F(FakeNccl, ARevokedCommunicatorStopsAndRefusesMore) {
  set_nccl_faults("stuck@1:rank0");
  run_ranks(2, [](Rank& r) {
    float* data = r.upload<float>({1.0F});
    ASSERT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclCommRevoke(r.comm, 0), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream),
              ncclInvalidUsage);
  });
}

TEST_F(FakeNccl, ARemoteErrorIsSeenByAsking) {
  set_nccl_faults("remote_error@2:rank1");
  run_ranks(2, [](Rank& r) {
    float* data = r.upload<float>({1.0F});
    ASSERT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    ASSERT_EQ(cudaStreamSynchronize(r.stream), cudaSuccess);
    ASSERT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    if (r.rank == 1) {
      EXPECT_EQ(wait_error(r.comm), ncclRemoteError);
      EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream),
                ncclRemoteError);
    }
  });
}

TEST_F(FakeNccl, DifferentOperationsAreInvalidUsageOnBoth) {
  run_ranks(2, [](Rank& r) {
    float* data = r.upload<float>({1.0F, 2.0F});
    const std::size_t count = r.rank == 0 ? 1 : 2;
    ASSERT_EQ(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, r.comm, r.stream),
              ncclSuccess);
    EXPECT_EQ(wait_error(r.comm), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(r.comm)).find("rank 1: ncclAllReduce of 2 f32"),
              std::string::npos);
  });
  run_ranks(2, [](Rank& r) {
    float* data = r.upload<float>({1.0F, 2.0F});
    if (r.rank == 0) {
      ASSERT_EQ(ncclSend(data, 1, ncclFloat32, 1, r.comm, r.stream), ncclSuccess);
    } else {
      ASSERT_EQ(ncclRecv(data, 2, ncclFloat32, 0, r.comm, r.stream), ncclSuccess);
    }
    EXPECT_EQ(wait_error(r.comm), ncclInvalidUsage);
  });
}

TEST_F(FakeNccl, TwoRanksOnOneDeviceAreRefused) {
  const ncclUniqueId id = make_id();
  std::thread other([&] {
    Rank second(1, 2, id, false, 0);
    EXPECT_EQ(wait_error(second.comm), ncclInvalidUsage);
  });
  Rank first(0, 2, id, true, 0);
  EXPECT_EQ(first.init, ncclInvalidUsage);
  EXPECT_EQ(first.comm, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected"),
            std::string::npos);
  other.join();
}

TEST_F(FakeNccl, AnInitThatNeverEndsCanBeAborted) {
  set_nccl_faults("init_never:rank1");
  const ncclUniqueId id = make_id();
  Rank first(0, 2, id, false);
  std::thread other([&] {
    Rank second(1, 2, id, false);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(async_error(second.comm), ncclInProgress);
  });
  other.join();
  EXPECT_EQ(async_error(first.comm), ncclInProgress);
}

TEST_F(FakeNccl, AVersionCanBePretended) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  set_nccl_faults("version=2.19.3");
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 21903);
}

TEST_F(FakeNcclDeathTest, WorkBehindAnOperationInProgressDies) {
  EXPECT_EXIT(
      {
        Rank rank(0, 1, make_id(), false);
        static_cast<void>(wait_ready(rank.comm));
        float* data = rank.upload<float>({1.0F});
        static_cast<void>(
            ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
        static_cast<void>(cudaMemsetAsync(data, 0, 4, rank.stream));
      },
      testing::KilledBySignal(SIGABRT), "poll ncclCommGetAsyncError first");
}

TEST_F(FakeNcclDeathTest, HostMemoryDies) {
  EXPECT_EXIT(
      {
        Rank rank(0, 1, make_id(), true);
        float data[1] = {};
        static_cast<void>(
            ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
      },
      testing::KilledBySignal(SIGABRT), "is in no memory that a device can reach");
}

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
