// SPDX-License-Identifier: Apache-2.0
// The fake NCCL's operations, with ranks as threads.
#include <numeric>
#include <string>
#include <utility>

#include "tests/fakes/cuda/elements.h"
#include "tests/fakes/nccl_ranks.h"

namespace lockstep::fake {
namespace {

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

}  // namespace
}  // namespace lockstep::fake
