// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// What the log says of rank 0's GPU; names without "gpu_". What its driver does not say is absent.
struct GpuRecord {
  std::optional<double> utilization_ratio = {};
  std::optional<double> memory_used_bytes = {};
  std::optional<double> memory_total_bytes = {};
  std::optional<double> power_watts = {};
  std::optional<double> temperature_celsius = {};
  std::optional<double> throttle_seconds_total = {};  // of this attempt, by power or heat
};

/// One logged step. Reals are printed as %.9g, so that equal bits of an f32 mean equal text; a
/// value that is not finite is null.
struct StepRecord {
  std::int64_t attempt = 0;
  std::int64_t step = 0;
  std::int64_t tokens = 0;  // cumulative
  double loss = 0.0;        // mean of this step, nats, rounded to f32
  double grad_norm = 0.0;   // of the mean gradient, before clip
  double lr = 0.0;          // the one applied; 0 where no update was made
  double step_seconds = 0.0;
  double tokens_per_s = 0.0;
  double data_wait_s = 0.0;
  double comm_exposed_s = 0.0;
  double checkpoint_stall_s = 0.0;
  std::optional<double> eval_loss = {};
  std::optional<double> loss_scale = {};     // fp16: of this step
  std::optional<std::int64_t> skipped = {};  // fp16: updates withheld so far
  GpuRecord gpu = {};
};

/// The line, with its line feed.
std::string to_json_line(const StepRecord& record);

/// RUN/metrics.jsonl, appended to. A torn line of a killed attempt is ended first. What cannot be
/// written, e.g. while a save fills the disk, is kept and goes with the next line.
class MetricsLog {
 public:
  /// Throws StorageError.
  explicit MetricsLog(const std::filesystem::path& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  /// Throws StorageError if more than kBacklogLimit bytes wait by then.
  void append(const StepRecord& record);
  /// Throws StorageError unless everything is written.
  void flush();

  bool is_behind() const noexcept { return !pending_.empty(); }
  /// What failed last.
  const std::string& fault() const noexcept { return fault_; }

  static constexpr std::size_t kBacklogLimit = std::size_t{4} << 20;

 private:
  void write_pending();
  [[noreturn]] void refuse() const;

  std::filesystem::path path_;
  int file_ = -1;
  std::string pending_;
  std::string fault_;
};

}  // namespace lockstep
