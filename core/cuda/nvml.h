// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/core/device.h"

namespace lockstep::cuda {

/// What NVML says of one GPU now. What it does not say on this GPU, driver or MIG slice is absent.
struct GpuReadings {
  std::optional<double> utilization_ratio =
      {};  // share of time with a kernel on it, waits of NCCL too
  std::optional<double> memory_used_bytes = {};
  std::optional<double> memory_total_bytes = {};
  std::optional<double> power_watts = {};
  std::optional<double> temperature_celsius = {};
  std::optional<bool> is_throttled = {};  // by power or heat
};

/// One GPU's sensors. One thread at a time.
class GpuSensors {
 public:
  GpuSensors() = default;
  virtual ~GpuSensors() = default;
  GpuSensors(const GpuSensors&) = delete;
  GpuSensors& operator=(const GpuSensors&) = delete;
  virtual GpuReadings read() = 0;
};

struct FoundSensors {
  std::unique_ptr<GpuSensors> sensors;  // null where there are none
  std::string reason;                   // why
};

/// Opens NVML, which comes with the driver, at run time. `device` is found by its PCI bus: NVML
/// counts devices differently. Never throws for what is missing.
FoundSensors find_sensors(Device device);

}  // namespace lockstep::cuda
