// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/machine.h"

namespace lockstep::fake {

/// A host function that holds its stream until it is opened.
struct Gate {
  std::atomic<bool> open{false};
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void close(cudaStream_t stream) {
    ASSERT_EQ(cudaLaunchHostFunc(stream, wait, this), cudaSuccess);
  }
};

/// Two streams and an event on device 0.
class FakeCuda : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // there are workers
    set_cuda_faults("");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t* stream : {&stream_, &other_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    set_cuda_faults("");
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    static_cast<void>(cudaGetLastError());
  }

  template <typename T>
  T* allocate(std::size_t n) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, n * sizeof(T)), cudaSuccess);
    return static_cast<T*>(data);
  }
  template <typename T>
  T* upload(const std::vector<T>& values) {
    T* data = allocate<T>(values.size());
    EXPECT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
    return data;
  }
  template <typename T>
  std::vector<T> download(const T* data, std::size_t n) {
    std::vector<T> values(n);
    EXPECT_EQ(cudaMemcpy(values.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace lockstep::fake
