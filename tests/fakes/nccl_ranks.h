// SPDX-License-Identifier: Apache-2.0
// Ranks as the tests of the fake NCCL use them.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_faults.h"

namespace lockstep::fake {

using std::chrono::milliseconds;

inline ncclResult_t async_error(ncclComm_t comm) {
  ncclResult_t error = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  return error;
}

/// The first asynchronous state that `goes_on` does not hold for, or the one after 20 s.
template <typename GoesOn>
ncclResult_t wait_while(ncclComm_t comm, const GoesOn& goes_on) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ncclResult_t error = async_error(comm);
  while (goes_on(error) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
    error = async_error(comm);
  }
  return error;
}

inline ncclResult_t wait_ready(ncclComm_t comm) {
  return wait_while(comm, [](ncclResult_t error) { return error == ncclInProgress; });
}

inline ncclResult_t wait_error(ncclComm_t comm) {
  return wait_while(
      comm, [](ncclResult_t error) { return error == ncclSuccess || error == ncclInProgress; });
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

inline ncclUniqueId make_id() {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

inline void run_ranks(int ranks, const std::function<void(Rank&)>& body, bool blocking = true) {
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

}  // namespace lockstep::fake
