// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

void add_integer(std::string& line, const char* name, std::int64_t value) {
  line += std::string(line.size() > 1 ? ",\"" : "\"") + name + "\":" + std::to_string(value);
}

void add_real(std::string& line, const char* name, double value) {
  char text[32] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.9g", value);
  line += std::string(",\"") + name + "\":" + text;
}

}  // namespace

std::string to_json_line(const StepRecord& record) {
  std::string line = "{";
  add_integer(line, "attempt", record.attempt);
  add_integer(line, "step", record.step);
  add_integer(line, "tokens", record.tokens);
  add_real(line, "loss", record.loss);
  add_real(line, "grad_norm", record.grad_norm);
  add_real(line, "lr", record.lr);
  add_real(line, "step_seconds", record.step_seconds);
  add_real(line, "tokens_per_s", record.tokens_per_s);
  add_real(line, "data_wait_s", record.data_wait_s);
  add_real(line, "comm_exposed_s", record.comm_exposed_s);
  add_real(line, "checkpoint_stall_s", record.checkpoint_stall_s);
  if (record.eval_loss) add_real(line, "eval_loss", *record.eval_loss);
  if (record.loss_scale) add_real(line, "loss_scale", *record.loss_scale);
  if (record.skipped) add_integer(line, "skipped", *record.skipped);
  const auto add_gpu = [&](const char* name, const std::optional<double>& value) {
    if (value) add_real(line, name, *value);
  };
  add_gpu("gpu_utilization_ratio", record.gpu.utilization_ratio);
  const auto add_bytes = [&](const char* name, const std::optional<double>& value) {
    if (value) add_integer(line, name, static_cast<std::int64_t>(*value));
  };
  add_bytes("gpu_memory_used_bytes", record.gpu.memory_used_bytes);
  add_bytes("gpu_memory_total_bytes", record.gpu.memory_total_bytes);
  add_gpu("gpu_power_watts", record.gpu.power_watts);
  add_gpu("gpu_temperature_celsius", record.gpu.temperature_celsius);
  add_gpu("gpu_throttle_seconds_total", record.gpu.throttle_seconds_total);
  return line + "}\n";
}

MetricsLog::MetricsLog(const std::filesystem::path& path) : path_(path) {
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw StorageError("cannot open " + path.string() + ": " + std::strerror(errno),
                       "check the run folder's permissions");
  }
  const off_t size = lseek(file_, 0, SEEK_END);
  char last = '\n';
  if (size > 0 && pread(file_, &last, 1, size - 1) == 1 && last != '\n') {
    pending_ = "\n";
    write_pending();
  }
}

MetricsLog::~MetricsLog() { close(file_); }

void MetricsLog::append(const StepRecord& record) {
  pending_ += to_json_line(record);
  write_pending();
  if (pending_.size() > kBacklogLimit) refuse();
}

void MetricsLog::flush() {
  write_pending();
  if (is_behind()) refuse();
}

void MetricsLog::write_pending() {
  // One call a line: a kill leaves at most the last line torn.
  const ssize_t wrote = ::write(file_, pending_.data(), pending_.size());
  if (wrote == static_cast<ssize_t>(pending_.size())) {
    pending_.clear();
    return;
  }
  fault_ = "cannot append to " + path_.string() + ": " +
           (wrote < 0 ? std::strerror(errno) : "the disk is full");
  if (wrote > 0) pending_.erase(0, static_cast<std::size_t>(wrote));
}

void MetricsLog::refuse() const {
  throw StorageError(fault_, "make space; the run resumes from its last commit");
}

}  // namespace lockstep
