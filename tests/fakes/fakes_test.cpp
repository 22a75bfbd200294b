// SPDX-License-Identifier: Apache-2.0
// The fakes' own tests: what they must have in common with the real libraries for tests over them
// to mean anything. Here the runtime and launches.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/launch_twin.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"
#include "tests/fakes/cuda_fixture.h"

namespace lockstep::fake {
namespace {

using std::chrono::milliseconds;

using FakeCudaDeathTest = FakeCuda;

TEST_F(FakeCuda, DevicesHaveNamesUniqueIdsAndAComputeCapability) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(count, 4);  // main.cpp
  cudaDeviceProp first{};
  cudaDeviceProp second{};
  ASSERT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_NE(std::memcmp(first.uuid.bytes, second.uuid.bytes, 16), 0);
  EXPECT_EQ(first.major, 9);
  EXPECT_EQ(cudaGetDeviceProperties(&first, 4), cudaErrorInvalidDevice);
  char id[16] = "";
  ASSERT_EQ(cudaDeviceGetPCIBusId(id, sizeof id, 1), cudaSuccess);
  int device = -1;
  ASSERT_EQ(cudaDeviceGetByPCIBusId(&device, id), cudaSuccess);
  EXPECT_EQ(device, 1);
}

TEST_F(FakeCuda, EachThreadHasItsCurrentDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int there = -1;
  std::thread([&] { EXPECT_EQ(cudaGetDevice(&there), cudaSuccess); }).join();
  EXPECT_EQ(there, 0);
  int here = -1;
  ASSERT_EQ(cudaGetDevice(&here), cudaSuccess);
  EXPECT_EQ(here, 1);
  EXPECT_EQ(cudaSetDevice(9), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(FakeCuda, WorkOfAStreamRunsInOrderAndNotOnTheCaller) {
  Gate gate;
  gate.close(stream_);
  auto* data = allocate<unsigned char>(4);
  ASSERT_EQ(cudaMemsetAsync(data, 1, 4, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 2, 2, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other_), cudaSuccess);
  gate.open = true;
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(download(data, 4), (std::vector<unsigned char>{2, 2, 1, 1}));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, AnEventOrdersTwoStreams) {
  Gate gate;
  auto* data = allocate<unsigned char>(1);
  gate.close(stream_);
  ASSERT_EQ(cudaMemsetAsync(data, 1, 1, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 2, 1, other_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other_), cudaErrorNotReady);
  gate.open = true;
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(download(data, 1).front(), 2);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, AWaitIsForTheRecordBeforeIt) {
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);  // never recorded: reached
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  Gate gate;
  gate.close(stream_);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);  // a later one, which nobody waits for
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  gate.open = true;
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(FakeCuda, TimedEventsMeasure) {
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, stream_), cudaSuccess);
  const auto nap = [](void*) { std::this_thread::sleep_for(milliseconds(5)); };
  ASSERT_EQ(cudaLaunchHostFunc(stream_, nap, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float elapsed = 0.0F;
  ASSERT_EQ(cudaEventElapsedTime(&elapsed, start, end), cudaSuccess);
  EXPECT_GE(elapsed, 5.0F);
  EXPECT_EQ(cudaEventElapsedTime(&elapsed, start, event_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

TEST_F(FakeCuda, TheDefaultStreamIsRefused) {
  auto* data = allocate<unsigned char>(1);
  EXPECT_EQ(cudaMemsetAsync(data, 0, 1, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event_, cudaStreamLegacy), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, AnEventOfAnotherDeviceCannotBeRecorded) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaEvent_t there = nullptr;
  ASSERT_EQ(cudaEventCreate(&there), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(there, stream_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, there, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(there), cudaSuccess);
}

TEST_F(FakeCuda, DestroyingAStreamDrainsIt) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -5), cudaSuccess);
  std::atomic<int> ran{0};
  const auto count = [](void* n) {
    std::this_thread::sleep_for(milliseconds(1));
    ++*static_cast<std::atomic<int>*>(n);
  };
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaLaunchHostFunc(stream, count, &ran), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(ran, 5);
}

TEST_F(FakeCuda, NewMemoryIsPoisonedAndLimited) {
  auto* data = allocate<unsigned char>(1000);
  const auto bytes = download(data, 1000);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](auto b) { return b == 0xFB; }));
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, std::size_t{64} << 20U);  // main.cpp
  EXPECT_EQ(total - free, 1000U);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, total), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaErrorInvalidValue);
}

TEST_F(FakeCuda, FreeWaitsForWorkThatUsesTheMemory) {
  auto* data = allocate<unsigned char>(8);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  Gate gate;
  gate.close(stream_);
  ASSERT_EQ(cudaMemsetAsync(data, 7, 8, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, data, 8, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(10));
    gate.open = true;
  });
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(static_cast<unsigned char*>(pinned)[7], 7);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  opener.join();
}

TEST_F(FakeCuda, PageableMemoryIsStagedBeforeTheCallReturns) {
  auto* data = allocate<int>(1);
  Gate gate;
  gate.close(stream_);
  int value = 1;
  ASSERT_EQ(cudaMemcpyAsync(data, &value, sizeof value, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  value = 2;
  gate.open = true;
  int back = 0;
  ASSERT_EQ(cudaMemcpyAsync(&back, data, sizeof back, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(back, 1);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, PointersAreKnownForWhatTheyAre) {
  auto* data = allocate<int>(4);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, data + 1), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  int local = 0;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &local), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(&local, sizeof local, 0), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &local), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(&local), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, TheNthCallFailsAsAskedFor) {
  set_cuda_faults("cudaMalloc:2,cudaEventQuery:1=700");
  auto* data = allocate<int>(1);
  void* second = nullptr;
  EXPECT_EQ(cudaMalloc(&second, 4), cudaErrorUnknown);
  EXPECT_EQ(cudaMalloc(&second, 4), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorUnknown), "cudaErrorUnknown");
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

struct AddArgs {
  int* data;
  int n;
  int value;
};
void add_twin(const AddArgs& args) {
  for (int i = 0; i < args.n; ++i) args.data[i] += args.value;
}

cudaError_t launch_add(cudaStream_t stream, const AddArgs& args, unsigned threads = 128) {
  return launch_twin("add", reinterpret_cast<const void*>(&add_twin), {.threads = {threads, 1, 1}},
                     &args, sizeof args, stream);
}

TEST_F(FakeCuda, ATwinRunsInTheStreamsOrderWithItsOwnArguments) {
  int* data = upload<int>({1, 2, 3});
  Gate gate;
  gate.close(stream_);
  AddArgs args{.data = data, .n = 3, .value = 10};
  ASSERT_EQ(launch_add(stream_, args), cudaSuccess);
  args.value = 100;  // too late
  gate.open = true;
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(download(data, 3), (std::vector<int>{11, 12, 13}));
  EXPECT_EQ(launch_add(stream_, args, 2048), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(data, {1, 1, 1}, {1, 1, 1}, nullptr, 0, stream_),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCuda, AFaultOfAKernelStaysAndDropsTheWorkBehindIt) {
  set_cuda_faults("launch:2");
  int* data = upload<int>({0});
  const AddArgs args{.data = data, .n = 1, .value = 1};
  Gate gate;
  gate.close(stream_);
  ASSERT_EQ(launch_add(stream_, args), cudaSuccess);
  ASSERT_EQ(launch_add(stream_, args), cudaSuccess);  // faults when it runs
  ASSERT_EQ(launch_add(stream_, args), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  gate.open = true;
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 4), cudaErrorIllegalAddress);
  set_cuda_faults("");
  EXPECT_EQ(download(data, 1).front(), 1);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCudaDeathTest, AHostFunctionMustNotCallCuda) {
  const auto call = [](void*) { static_cast<void>(cudaGetLastError()); };
  EXPECT_EXIT(
      {
        static_cast<void>(cudaLaunchHostFunc(stream_, call, nullptr));
        static_cast<void>(cudaStreamSynchronize(stream_));
      },
      testing::KilledBySignal(SIGABRT), "cudaGetLastError inside a host function");
}

TEST_F(FakeCudaDeathTest, ACopyBeyondItsMemoryDies) {
  auto* data = allocate<unsigned char>(100);
  unsigned char host[200] = {};
  EXPECT_EXIT(
      static_cast<void>(cudaMemcpyAsync(data + 1, host, 100, cudaMemcpyHostToDevice, stream_)),
      testing::KilledBySignal(SIGABRT), "destination of 100 bytes begins at byte 1");
  EXPECT_EXIT(
      static_cast<void>(cudaMemcpyAsync(host, host + 100, 100, cudaMemcpyDeviceToHost, stream_)),
      testing::KilledBySignal(SIGABRT), "source of 100 bytes is in no allocated device");
  EXPECT_EXIT(static_cast<void>(cudaMemcpyAsync(data, data, 10, cudaMemcpyDeviceToHost, stream_)),
              testing::KilledBySignal(SIGABRT),
              "destination of 10 bytes is not memory of the host");
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeCudaDeathTest, AWriteToFreedMemoryIsFound) {
  EXPECT_EXIT(
      {
        int* data = upload<int>({1});
        static_cast<void>(cudaFree(data));
        static_cast<void>(launch_add(stream_, {.data = data, .n = 1, .value = 1}));
        static_cast<void>(cudaStreamSynchronize(stream_));
        check_freed_memory();
      },
      testing::KilledBySignal(SIGABRT), "was written after cudaFree|use-after-free");
}

TEST_F(FakeCudaDeathTest, ADestroyedStreamOrEventIsNoticed) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EXIT(static_cast<void>(cudaStreamQuery(stream)), testing::KilledBySignal(SIGABRT),
              "does not exist any more");
}

}  // namespace
}  // namespace lockstep::fake
