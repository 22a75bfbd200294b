// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {

/// How an attempt ended: RUN/result.json, the authority for schedulers.
struct RunResult {
  std::optional<Outcome> code = {};  // none while it runs
  std::string reason = {};
  std::int64_t attempt = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::optional<double> loss = {};  // of the last step
  std::string weights_sha256 = {};  // empty: not known
  std::optional<std::int64_t> bits_broken_at_step = {};
};

/// Why one rank of an attempt failed: RUN/cause/<attempt>.<rank>.json.
struct RunCause {
  Outcome code = Outcome::internal;
  std::string kind = {};  // "lost rank", "stopped rank", "exception", …
  int origin_rank = -1;
  std::string what = {};
  std::string hint = {};
};

/// The folder of a run. Every file in it is replaced whole or not at all.
class RunFolder {
 public:
  /// Makes the folder where it is missing. Throws ConfigError if it cannot be written.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();  // gives the lock back
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

  /// Takes RUN/lock; one process of a job does. Waits up to 10 s for another holder to leave, then
  /// throws ConfigError that names its host and process.
  void lock();

  void write_attempt(std::int64_t attempt, const std::vector<std::string>& hosts,
                     const std::vector<int>& process_ids) const;
  void write_result(const RunResult& result) const;
  /// Does not throw: it is called while a job dies. Returns whether the file is there.
  bool write_cause(std::int64_t attempt, int rank, const RunCause& cause) const noexcept;
  /// Waits until the disk has a cause and the result. The writing of a failure does not: launchers
  /// kill what is left of a job within a second, which an fsync may take.
  void sync_failure(std::int64_t attempt, int rank) const noexcept;

 private:
  std::filesystem::path result_path() const;
  std::filesystem::path cause_path(std::int64_t attempt, int rank) const;

  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lockstep
