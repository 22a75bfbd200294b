// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/nvml.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvml.h>

#include <array>

namespace lockstep::cuda {
namespace {

// The functions of one libnvidia-ml. Older and newer drivers have some of those that come in two
// versions: a missing one is a metric less.
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      reason_ = "libnvidia-ml.so.1 does not open (it comes with the driver)";
      return;
    }
    load(init_, "nvmlInit_v2");
    load(shutdown_, "nvmlShutdown");
    load(error_string_, "nvmlErrorString");
    load(by_bus_, "nvmlDeviceGetHandleByPciBusId_v2");
    load(utilization_, "nvmlDeviceGetUtilizationRates");
    load(memory_v2_, "nvmlDeviceGetMemoryInfo_v2");
    load(memory_, "nvmlDeviceGetMemoryInfo");
    load(power_, "nvmlDeviceGetPowerUsage");
    load(temperature_v_, "nvmlDeviceGetTemperatureV");
    load(temperature_, "nvmlDeviceGetTemperature");
    load(reasons_, "nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons_ == nullptr) load(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (init_ == nullptr || by_bus_ == nullptr) {
      reason_ = "libnvidia-ml.so.1 lacks nvmlInit_v2";
    } else {
      is_initialized_ = is_good(init_());
    }
  }
  ~Nvml() {
    if (is_initialized_ && shutdown_ != nullptr) static_cast<void>(shutdown_());
    if (library_ != nullptr) static_cast<void>(dlclose(library_));
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_initialized() const noexcept { return is_initialized_; }
  const std::string& reason() const noexcept { return reason_; }

  nvmlDevice_t find(const char* bus) {
    nvmlDevice_t device = nullptr;
    return is_good(by_bus_(bus, &device)) ? device : nullptr;
  }

  GpuReadings read(nvmlDevice_t device) const {
    GpuReadings readings;
    if (nvmlUtilization_t rates{}; works(utilization_, device, &rates)) {
      readings.utilization_ratio = rates.gpu / 100.0;
    }
    read_memory(device, readings);
    if (unsigned milliwatts = 0; works(power_, device, &milliwatts)) {
      readings.power_watts = milliwatts / 1000.0;
    }
    nvmlTemperature_t warmth{};
    warmth.version = nvmlTemperature_v1;
    warmth.sensorType = NVML_TEMPERATURE_GPU;
    if (works(temperature_v_, device, &warmth)) {
      readings.temperature_celsius = warmth.temperature;
    } else if (unsigned degrees = 0; works(temperature_, device, NVML_TEMPERATURE_GPU, &degrees)) {
      readings.temperature_celsius = degrees;
    }
    if (unsigned long long reasons = 0; works(reasons_, device, &reasons)) {
      constexpr auto bad = static_cast<unsigned long long>(
          nvmlClocksEventReasonSwPowerCap | nvmlClocksEventReasonSwThermalSlowdown |
          nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown |
          nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
      readings.is_throttled = (reasons & bad) != 0;
    }
    return readings;
  }

 private:
  template <typename Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }

  bool is_good(nvmlReturn_t status) {
    if (status == NVML_SUCCESS) return true;
    reason_ = "NVML: " + (error_string_ != nullptr ? std::string(error_string_(status))
                                                   : "error " + std::to_string(status));
    return false;
  }

  template <typename... Parameters, typename... Arguments>
  static bool works(nvmlReturn_t (*function)(Parameters...), Arguments... arguments) {
    return function != nullptr && function(arguments...) == NVML_SUCCESS;
  }

  void read_memory(nvmlDevice_t device, GpuReadings& readings) const {
    nvmlMemory_v2_t newer{};
    newer.version = nvmlMemory_v2;
    if (works(memory_v2_, device, &newer)) {
      readings.memory_used_bytes = static_cast<double>(newer.used);
      readings.memory_total_bytes = static_cast<double>(newer.total);
    } else if (nvmlMemory_t older{}; works(memory_, device, &older)) {
      readings.memory_used_bytes = static_cast<double>(older.used);
      readings.memory_total_bytes = static_cast<double>(older.total);
    }
  }

  void* library_;
  bool is_initialized_ = false;
  std::string reason_;
  decltype(::nvmlInit_v2)* init_ = nullptr;
  decltype(::nvmlShutdown)* shutdown_ = nullptr;
  decltype(::nvmlErrorString)* error_string_ = nullptr;
  decltype(::nvmlDeviceGetHandleByPciBusId_v2)* by_bus_ = nullptr;
  decltype(::nvmlDeviceGetUtilizationRates)* utilization_ = nullptr;
  decltype(::nvmlDeviceGetMemoryInfo_v2)* memory_v2_ = nullptr;
  decltype(::nvmlDeviceGetMemoryInfo)* memory_ = nullptr;
  decltype(::nvmlDeviceGetPowerUsage)* power_ = nullptr;
  decltype(::nvmlDeviceGetTemperatureV)* temperature_v_ = nullptr;
  nvmlReturn_t (*temperature_)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) = nullptr;
  decltype(::nvmlDeviceGetCurrentClocksEventReasons)* reasons_ = nullptr;
};

class NvmlSensors final : public GpuSensors {
 public:
  NvmlSensors(std::unique_ptr<Nvml> nvml, nvmlDevice_t device)
      : nvml_(std::move(nvml)), device_(device) {}
  GpuReadings read() override { return nvml_->read(device_); }

 private:
  std::unique_ptr<Nvml> nvml_;
  nvmlDevice_t device_;
};

}  // namespace

FoundSensors find_sensors(Device device) {
  std::array<char, 32> bus{};
  const cudaError_t status =
      cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device.index);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next check of a launch would find it
    return {.sensors = nullptr, .reason = to_string(device) + ": " + cudaGetErrorString(status)};
  }
  auto nvml = std::make_unique<Nvml>();
  nvmlDevice_t found = nvml->is_initialized() ? nvml->find(bus.data()) : nullptr;
  if (found == nullptr) return {.sensors = nullptr, .reason = nvml->reason()};
  return {.sensors = std::make_unique<NvmlSensors>(std::move(nvml), found), .reason = {}};
}

}  // namespace lockstep::cuda
