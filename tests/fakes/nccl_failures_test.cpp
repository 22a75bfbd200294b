// SPDX-License-Identifier: Apache-2.0
// What the fake NCCL does where something is wrong, by itself or on request.
#include <utility>

#include "tests/fakes/nccl_ranks.h"

// Newer than some headers that this is built with.
extern "C" ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);

namespace lockstep::fake {
namespace {

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

}  // namespace
}  // namespace lockstep::fake
