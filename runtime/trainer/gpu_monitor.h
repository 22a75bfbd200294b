// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/cuda/nvml.h"
#include "lockstep/core/metrics.h"
#include "runtime/trainer/metrics_log.h"

namespace lockstep {

/// Reads a GPU's sensors once a second on a thread of its own, as a driver may take milliseconds to
/// answer, for the log and as metrics `lockstep_gpu_…`. Without sensors it does nothing.
class GpuMonitor {
 public:
  GpuMonitor(Device device, Metrics& metrics,
             std::chrono::milliseconds every = std::chrono::seconds(1));
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// Why there are no sensors; empty where there are.
  const std::string& reason() const noexcept { return found_.reason; }
  /// The newest readings. Any thread.
  GpuRecord latest() const;

 private:
  void read();
  void publish(const GpuRecord& record);

  cuda::FoundSensors found_;
  Metrics& metrics_;
  std::chrono::milliseconds every_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;
  GpuRecord latest_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
