// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/gpu_monitor.h"

namespace lockstep {

GpuMonitor::GpuMonitor(Device device, Metrics& metrics, std::chrono::milliseconds every)
    : found_(cuda::find_sensors(device)), metrics_(metrics), every_(every) {
  if (!found_.sensors) return;
  read();
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, every_, [this] { return is_ending_; })) {
      lock.unlock();
      read();
      lock.lock();
    }
  });
}

GpuMonitor::~GpuMonitor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

GpuRecord GpuMonitor::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void GpuMonitor::read() {
  const cuda::GpuReadings now = found_.sensors->read();
  GpuRecord record{.utilization_ratio = now.utilization_ratio,
                   .memory_used_bytes = now.memory_used_bytes,
                   .memory_total_bytes = now.memory_total_bytes,
                   .power_watts = now.power_watts,
                   .temperature_celsius = now.temperature_celsius};
  if (now.is_throttled) {
    Counter& seconds = metrics_.counter("lockstep_gpu_throttle_seconds_total",
                                        "Seconds with clocks lowered by power or heat.");
    if (*now.is_throttled) seconds.add(std::chrono::duration<double>(every_).count());
    record.throttle_seconds_total = seconds.value();
  }
  publish(record);
  const std::lock_guard lock(mutex_);
  latest_ = record;
}

void GpuMonitor::publish(const GpuRecord& record) {
  const auto set = [&](const char* name, const char* help, const std::optional<double>& value) {
    if (value) metrics_.gauge(name, help).set(*value);
  };
  set("lockstep_gpu_utilization_ratio", "Share of time with a kernel on the GPU.",
      record.utilization_ratio);
  set("lockstep_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes.",
      record.memory_used_bytes);
  set("lockstep_gpu_memory_total_bytes", "Memory of the GPU.", record.memory_total_bytes);
  set("lockstep_gpu_power_watts", "Power that the GPU draws.", record.power_watts);
  set("lockstep_gpu_temperature_celsius", "Temperature of the GPU.", record.temperature_celsius);
}

}  // namespace lockstep
