// SPDX-License-Identifier: Apache-2.0
// Streams, events and memory of CUDA, over the fakes of its libraries.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "core/host_memory.h"
#include "core/kernels.h"
#include "lockstep/core/copy.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr Device kGpu{.kind = DeviceKind::cuda, .index = 0};

TEST(CudaStream, RunsTasksInOrderAndTellsWhenTheyAreDone) {
  Stream stream(kGpu);
  EXPECT_NE(stream.native(), nullptr);
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  const Event done = stream.record();
  done.wait();
  EXPECT_TRUE(done.done());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CudaStream, AnEventIsNotReachedBeforeTheWorkInFrontOfIt) {
  Stream stream(kGpu);
  const Event gate = Event::make();
  stream.wait(gate);
  const Event behind = stream.record();
  EXPECT_FALSE(behind.done());
  EXPECT_FALSE(behind.wait_for(2ms));
  gate.reach();
  EXPECT_TRUE(behind.wait_for(5s));
}

TEST(CudaStream, WaitsForAnotherStreamOnTheDevice) {
  Stream first(kGpu);
  Stream second(kGpu);
  const Event gate = Event::make();
  std::atomic<int> steps{0};
  first.wait(gate);
  first.enqueue([&] { steps = 1; });
  second.wait(first.record());
  second.enqueue([&] { steps = steps * 10 + 2; });
  const Event done = second.record();
  EXPECT_FALSE(done.wait_for(2ms));
  gate.reach();
  done.wait();
  EXPECT_EQ(steps, 12);
}

// Host functions of all streams may share one thread, and communication learns by one that its
// input is there: a wait for the host must hold up none of them.
TEST(CudaStream, AWaitForTheHostHoldsUpNoOtherStream) {
  Stream waiting(kGpu);
  Stream other(kGpu);
  const Event gate = Event::make();
  waiting.wait(gate);
  const Event behind = waiting.record();
  const Event told = Event::make();
  other.enqueue([] {});
  other.record().on_done([told] { told.reach(); });
  EXPECT_TRUE(told.wait_for(5s));
  EXPECT_FALSE(behind.done());
  gate.fail(std::make_exception_ptr(DataError("a bad token", "look at it")));
  EXPECT_THROW(behind.wait(), DataError);
}

TEST(CudaStream, CallsBackOnceWhenAnEventIsReached) {
  Stream stream(kGpu);
  const Event gate = Event::make();
  stream.wait(gate);
  const Event event = stream.record();
  std::atomic<int> calls{0};
  const Event called = Event::make();
  event.on_done([&] {
    ++calls;
    called.reach();
  });
  EXPECT_EQ(calls, 0);
  gate.reach();
  EXPECT_TRUE(called.wait_for(5s));
  event.wait();
  EXPECT_EQ(calls, 1);
}

TEST(CudaStream, AFailureFailsTheEventsBehindItAndNotThoseBefore) {
  Stream stream(kGpu);
  bool ran = false;
  const Event before = stream.record();
  stream.enqueue([] { throw DataError("a bad token", "look at it"); });
  stream.enqueue([&] { ran = true; });
  const Event behind = stream.record();
  EXPECT_THROW(behind.wait(), DataError);
  EXPECT_NO_THROW(before.wait());
  EXPECT_THROW(stream.synchronize(), DataError);
  EXPECT_FALSE(ran);
}

TEST(CudaStream, AFailureReachesTheStreamThatWaitsForIt) {
  Stream first(kGpu);
  Stream second(kGpu);
  first.enqueue([] { throw DataError("a bad token", "look at it"); });
  second.wait(first.record());
  EXPECT_THROW(second.synchronize(), DataError);
}

// As after a kernel that never ends: the process must come to its end all the same.
TEST(CudaStream, OneThatHangsIsLeftAfterAWhile) {
  const Event never = Event::make();
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  const auto began = std::chrono::steady_clock::now();
  {
    Stream stream(kGpu);
    stream.wait(never);
    stream.enqueue([ran] { *ran = true; });
  }
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, 9s);
  EXPECT_LT(took, 25s);
  // What was queued has still all that it needs.
  EXPECT_FALSE(*ran);
  never.reach();
  for (int i = 0; i < 5000 && !*ran; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(*ran);
}

TEST(CudaMemory, IsGivenAgainAndZeroedOnRequest) {
  const void* first = nullptr;
  {
    const Tensor tensor(kGpu, {1000}, DType::f32);
    first = tensor.data();
    const Tensor ones(Device{}, {1000}, DType::f32);
    std::memset(ones.data(), 0x55, ones.bytes());
    copy_now(ones, tensor);
  }
  const Tensor again = Tensor::zeros(kGpu, {1000}, DType::f32);
  EXPECT_EQ(again.data(), first);
  const Tensor read = on_host(again);
  for (std::int64_t i = 0; i < read.size(); ++i) ASSERT_EQ(read.as<float>()[i], 0.0F);
}

TEST(CudaMemoryDeathTest, IsNoneOfTheHosts) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto touch = [] { *Tensor::zeros(kGpu, {1}, DType::f32).as<float>() = 1.0F; };
  EXPECT_EXIT(touch(), testing::KilledBySignal(SIGSEGV), "");
}

TEST(CudaMemory, SaysHowMuchThereIsWhereItIsTooLittle) {
  try {
    const Tensor tensor(kGpu, {std::int64_t{1} << 40}, DType::f32);
    FAIL() << "4 TiB of a device";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("left"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(Tensor(kGpu, {10}, DType::f32));
}

TEST(CudaMemory, OfTheHostIsZeroed) {
  const auto memory = host_memory(kGpu, 100);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(static_cast<const char*>(memory.get())[i], 0);
}

TEST(CudaKernels, GoToTheDeviceOfTheirStream) {
  Stream stream(kGpu);
  const Tensor values(Device{}, {3}, DType::f32);
  for (int i = 0; i < 3; ++i) values.as<float>()[i] = static_cast<float>(i + 1);
  const Tensor x(kGpu, {3}, DType::f32);
  copy_now(values, x);
  const Tensor y = Tensor::zeros(kGpu, {3}, DType::f32);
  kernels::add(stream, x, y);
  kernels::add(stream, x, y);
  stream.synchronize();
  const Tensor sums = on_host(y);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sums.as<float>()[i], static_cast<float>(2 * (i + 1)));
  const Tensor on_cpu = Tensor::zeros(Device{}, {3}, DType::f32);
  EXPECT_THROW(kernels::add(stream, x, on_cpu), UsageError);
}

}  // namespace
}  // namespace lockstep
