// SPDX-License-Identifier: Apache-2.0
// The fakes' own tests: what they must have in common with the real libraries for tests over them
// to mean anything. Here the runtime, launches and cuBLASLt.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/elements.h"
#include "tests/fakes/cuda/launch_twin.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace lockstep::fake {
namespace {

using std::chrono::milliseconds;

// A host function that holds its stream until it is opened.
struct Gate {
  std::atomic<bool> open{false};
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open) std::this_thread::sleep_for(milliseconds(1));
  }
  void close(cudaStream_t stream) {
    ASSERT_EQ(cudaLaunchHostFunc(stream, wait, this), cudaSuccess);
  }
};

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

// cuBLASLt against sums in f64. A is [m, k] and B [k, n] once op() is applied.
class FakeBlas : public FakeCuda {
 protected:
  struct Case {
    std::size_t m;
    std::size_t n;
    std::size_t k;
    bool transpose_a;
    bool transpose_b;
    float alpha;
    float beta;
    bool row_major;
  };

  static std::vector<float> values(std::size_t n, int seed) {
    std::vector<float> result(n);
    for (std::size_t i = 0; i < n; ++i) {
      result[i] = static_cast<float>((static_cast<int>(i) * 37 + seed) % 17 - 8) / 8.0F;
    }
    return result;
  }

  cublasLtMatrixLayout_t layout(cudaDataType_t type, std::size_t rows, std::size_t columns,
                                std::size_t ld, bool row_major) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, type, rows, columns, static_cast<std::int64_t>(ld)),
              CUBLAS_STATUS_SUCCESS);
    const cublasLtOrder_t order = row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order),
        CUBLAS_STATUS_SUCCESS);
    return made;
  }

  template <typename T>
  void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }

  void check(const Case& c) {
    SCOPED_TRACE(testing::Message() << c.m << " " << c.n << " " << c.k << " " << c.transpose_a
                                    << c.transpose_b << c.row_major);
    const std::size_t a_rows = c.transpose_a ? c.k : c.m;
    const std::size_t a_columns = c.transpose_a ? c.m : c.k;
    const std::size_t b_rows = c.transpose_b ? c.n : c.k;
    const std::size_t b_columns = c.transpose_b ? c.k : c.n;
    const auto ld = [&](std::size_t rows, std::size_t columns) {
      return (c.row_major ? columns : rows) + 3;
    };
    const auto at = [&](const std::vector<float>& x, std::size_t rows, std::size_t columns,
                        std::size_t i, std::size_t j) {
      return x[c.row_major ? i * ld(rows, columns) + j : j * ld(rows, columns) + i];
    };
    const auto size = [&](std::size_t rows, std::size_t columns) {
      return ld(rows, columns) * (c.row_major ? rows : columns);
    };
    const auto a = values(size(a_rows, a_columns), 1);
    const auto b = values(size(b_rows, b_columns), 2);
    const auto before = values(size(c.m, c.n), 3);
    float* da = upload(a);
    float* db = upload(b);
    float* dd = upload(before);

    cublasLtHandle_t handle = nullptr;
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDesc_t desc = nullptr;
    ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, c.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, c.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    const auto la = layout(CUDA_R_32F, a_rows, a_columns, ld(a_rows, a_columns), c.row_major);
    const auto lb = layout(CUDA_R_32F, b_rows, b_columns, ld(b_rows, b_columns), c.row_major);
    const auto ldd = layout(CUDA_R_32F, c.m, c.n, ld(c.m, c.n), c.row_major);
    cublasLtMatmulPreference_t preference = nullptr;
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t choice{};
    int found = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ldd, ldd, preference, 1, &choice,
                                             &found),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(found, 1);
    ASSERT_EQ(cublasLtMatmul(handle, desc, &c.alpha, da, la, db, lb, &c.beta, dd, ldd, dd, ldd,
                             &choice.algo, nullptr, 0, stream_),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const auto d = download(dd, before.size());
    for (std::size_t i = 0; i < c.m; ++i) {
      for (std::size_t j = 0; j < c.n; ++j) {
        double sum = 0.0;
        for (std::size_t k = 0; k < c.k; ++k) {
          const float x =
              c.transpose_a ? at(a, a_rows, a_columns, k, i) : at(a, a_rows, a_columns, i, k);
          const float y =
              c.transpose_b ? at(b, b_rows, b_columns, j, k) : at(b, b_rows, b_columns, k, j);
          sum += double{x} * double{y};
        }
        const double want = c.alpha * sum + c.beta * at(before, c.m, c.n, i, j);
        ASSERT_NEAR(at(d, c.m, c.n, i, j), want, 1e-4) << i << " " << j;
      }
    }
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    for (const auto made : {la, lb, ldd}) cublasLtMatrixLayoutDestroy(made);
    EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
    for (float* data : {da, db, dd}) EXPECT_EQ(cudaFree(data), cudaSuccess);
  }
};

TEST_F(FakeBlas, ProductsHonourTransposesOrdersLeadingDimensionsAndFactors) {
  for (const bool row_major : {false, true}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        check({7, 9, 5, transpose_a, transpose_b, 1.0F, 0.0F, row_major});
        check({16, 8, 33, transpose_a, transpose_b, 0.5F, 2.0F, row_major});
      }
    }
  }
  check({1, 1, 1, false, false, 1.0F, 1.0F, false});
}

TEST_F(FakeBlas, EpiloguesAddABiasAndTakeTheGeluInBf16) {
  constexpr std::size_t kM = 8;
  constexpr std::size_t kN = 3;
  const auto halves = [](const std::vector<float>& x) {
    std::vector<std::uint16_t> result;
    for (const float value : x) result.push_back(to_bf16(value));
    return result;
  };
  std::vector<float> identity(kM * kM, 0.0F);
  for (std::size_t i = 0; i < kM; ++i) identity[i * kM + i] = 1.0F;
  const auto b = values(kM * kN, 4);
  const auto bias = values(kM, 5);
  std::uint16_t* da = upload(halves(identity));
  std::uint16_t* db = upload(halves(b));
  std::uint16_t* dbias = upload(halves(bias));
  auto* dd = allocate<std::uint16_t>(kM * kN);
  auto* daux = allocate<std::uint16_t>(kM * kN);

  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{kM});
  const auto la = layout(CUDA_R_16BF, kM, kM, kM, false);
  const auto lb = layout(CUDA_R_16BF, kM, kN, kM, false);
  const float one = 1.0F;
  const float zero = 0.0F;
  ASSERT_EQ(cublasLtMatmul(handle, desc, &one, da, la, db, lb, &zero, dd, lb, dd, lb, nullptr,
                           nullptr, 0, stream_),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const auto d = download(dd, kM * kN);
  const auto aux = download(daux, kM * kN);
  for (std::size_t i = 0; i < kM * kN; ++i) {
    const float x = b[i] + bias[i % kM];
    EXPECT_EQ(from_bf16(aux[i]), x);
    const double y = 0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(from_bf16(d[i]), y, 0.01);
  }
  const auto wide = layout(CUDA_R_32F, kM, kM, kM, false);
  EXPECT_EQ(cublasLtMatmul(handle, desc, &one, da, wide, db, lb, &zero, dd, lb, dd, lb, nullptr,
                           nullptr, 0, stream_),
            CUBLAS_STATUS_NOT_SUPPORTED);
  for (const auto made : {la, lb, wide}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
  for (std::uint16_t* data : {da, db, dbias, dd, daux}) EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST(FakeElements, HalvesRoundToNearestEven) {
  EXPECT_EQ(to_f16(1.0F), 0x3C00);
  EXPECT_EQ(to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(to_f16(0x1p-24F), 1);
  EXPECT_EQ(to_f16(0x1p-25F), 0);
  EXPECT_EQ(to_f16(-0.0F), 0x8000);
  EXPECT_EQ(to_bf16(1.00390625F), 0x3F80);  // a tie
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7C00U) != 0x7C00U || (half & 0x3FFU) == 0) {
      ASSERT_EQ(to_f16(from_f16(half)), half);
    }
    if ((half & 0x7F80U) != 0x7F80U) {
      ASSERT_EQ(to_bf16(from_bf16(half)), half);
    }
  }
}

}  // namespace
}  // namespace lockstep::fake
