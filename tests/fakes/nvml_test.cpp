// SPDX-License-Identifier: Apache-2.0
// The GPU's sensors, over a fake libnvidia-ml.so.1.
#include "core/cuda/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvml.h>

#include <thread>

#include "runtime/trainer/gpu_monitor.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Optional;

constexpr Device kSecond{.kind = DeviceKind::cuda, .index = 1};  // bus 2
constexpr double kGiB = 1 << 30;

// While it lives, libnvidia-ml.so.1 is this one: what is open is found by its name.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  ~Library() { dlclose(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void answer(const char* function, nvmlReturn_t status) const {
    const auto set =
        reinterpret_cast<void (*)(const char*, int)>(dlsym(handle_, "fake_nvml_answer"));
    set(function, status);
  }

 private:
  void* handle_;
};

class Nvml : public testing::TestWithParam<const char*> {};

TEST_P(Nvml, ReadsTheDeviceOfThatPciBus) {
  const Library library(GetParam());
  const cuda::FoundSensors found = cuda::find_sensors(kSecond);
  ASSERT_NE(found.sensors, nullptr) << found.reason;
  const cuda::GpuReadings now = found.sensors->read();
  EXPECT_THAT(now.utilization_ratio, Optional(0.52));
  EXPECT_THAT(now.memory_used_bytes, Optional(2 * kGiB));
  EXPECT_THAT(now.memory_total_bytes, Optional(80 * kGiB));
  EXPECT_THAT(now.power_watts, Optional(302.0));
  EXPECT_THAT(now.temperature_celsius, Optional(42.0));
  EXPECT_THAT(now.is_throttled, Optional(GetParam() == std::string(LOCKSTEP_FAKE_NVML_OLD)));
}

INSTANTIATE_TEST_SUITE_P(Drivers, Nvml,
                         testing::Values(LOCKSTEP_FAKE_NVML_NEW, LOCKSTEP_FAKE_NVML_OLD),
                         [](const auto& instance) { return instance.index == 0 ? "new" : "old"; });

TEST(GpuSensors, LeaveOutWhatADriverDoesNotSay) {
  const Library library(LOCKSTEP_FAKE_NVML_NEW);
  library.answer("nvmlDeviceGetUtilizationRates", NVML_ERROR_NOT_SUPPORTED);  // under MIG
  const cuda::FoundSensors found = cuda::find_sensors(kSecond);
  ASSERT_NE(found.sensors, nullptr) << found.reason;
  const cuda::GpuReadings now = found.sensors->read();
  EXPECT_EQ(now.utilization_ratio, std::nullopt);
  EXPECT_THAT(now.power_watts, Optional(302.0));
}

TEST(GpuSensors, SayWhyThereAreNone) {
  const Library library(LOCKSTEP_FAKE_NVML_NEW);
  library.answer("nvmlInit_v2", NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_THAT(cuda::find_sensors(kSecond).reason, HasSubstr("Driver Not Loaded"));
  const Device nowhere{.kind = DeviceKind::cuda, .index = 99};
  EXPECT_THAT(cuda::find_sensors(nowhere).reason, HasSubstr("cuda:99"));
}

TEST(GpuMonitor, ReadsAgainAndAgain) {
  const Library library(LOCKSTEP_FAKE_NVML_OLD);  // it throttles
  Metrics metrics;
  const GpuMonitor monitor(kSecond, metrics, std::chrono::milliseconds(5));
  ASSERT_EQ(monitor.reason(), "");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (monitor.latest().throttle_seconds_total < 0.05 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(monitor.latest().throttle_seconds_total, 0.05);
  EXPECT_THAT(metrics.text(), HasSubstr("lockstep_gpu_power_watts 302\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("# TYPE lockstep_gpu_throttle_seconds_total counter\n"));
}

}  // namespace
}  // namespace lockstep
