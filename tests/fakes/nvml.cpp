// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 that knows the fakes' devices by their PCI bus. With
// LOCKSTEP_FAKE_NVML_BEFORE_13 it has the functions of drivers before 13 alone, without it those of
// today alone. fake_nvml_answer makes a function answer with an error.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <cstdio>
#include <map>
#include <string>

namespace {

std::map<std::string, nvmlReturn_t>& answers() {
  static std::map<std::string, nvmlReturn_t> all;
  return all;
}

nvmlReturn_t answer(const char* function) {
  const auto found = answers().find(function);
  return found == answers().end() ? NVML_SUCCESS : found->second;
}

// A handle is the number of the bus, which is what the readings depend on.
unsigned bus_of(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device));
}

constexpr unsigned long long kGiB = 1ULL << 30U;

}  // namespace

extern "C" {

void fake_nvml_answer(const char* function, int status) {
  answers()[function] = static_cast<nvmlReturn_t>(status);
}

nvmlReturn_t nvmlInit_v2() { return answer("nvmlInit_v2"); }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }
const char* nvmlErrorString(nvmlReturn_t status) {
  return status == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Other";
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
  unsigned number = 0;
  if (std::sscanf(bus, "0000:%x:00.0", &number) != 1) return NVML_ERROR_NOT_FOUND;
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(number));
  return answer("nvmlDeviceGetHandleByPciBusId_v2");
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  *rates = {.gpu = 50 + bus_of(device), .memory = 1};
  return answer("nvmlDeviceGetUtilizationRates");
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  *milliwatts = 300'000 + 1000 * bus_of(device);
  return answer("nvmlDeviceGetPowerUsage");
}

#ifdef LOCKSTEP_FAKE_NVML_BEFORE_13
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  *memory = {.total = 80 * kGiB, .free = 0, .used = bus_of(device) * kGiB};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned* degrees) {
  *degrees = 40 + bus_of(device);
  return sensor == NVML_TEMPERATURE_GPU ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t /*device*/,
                                                       unsigned long long* reasons) {
  *reasons = nvmlClocksThrottleReasonHwThermalSlowdown;
  return NVML_SUCCESS;
}
#else
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory->version != 0x02000028) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->total = 80 * kGiB;
  memory->used = bus_of(device) * kGiB;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* warmth) {
  if (warmth->version != 0x0100000C) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  warmth->temperature = 40 + static_cast<int>(bus_of(device));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t /*device*/,
                                                    unsigned long long* reasons) {
  *reasons = nvmlClocksEventReasonGpuIdle;
  return answer("nvmlDeviceGetCurrentClocksEventReasons");
}
#endif

}  // extern "C"
