// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

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
};

/// The line, with its line feed.
std::string to_json_line(const StepRecord& record);

/// RUN/metrics.jsonl, appended to. A torn line of a killed attempt is ended first.
class MetricsLog {
 public:
  /// Throws StorageError.
  explicit MetricsLog(const std::filesystem::path& path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  void append(const StepRecord& record);

 private:
  void write(const std::string& text);

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace lockstep
