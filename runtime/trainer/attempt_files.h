// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>

#include "collectives/abort_signal.h"
#include "lockstep/runtime/run_folder.h"

namespace lockstep {

/// What a rank leaves behind when its job dies: its cause file and, from one rank, result.json. Any
/// thread; before open() nothing is written, since the run may be somebody else's.
class AttemptFiles {
 public:
  /// `folder` outlives the job's end on this rank.
  void open(std::shared_ptr<const RunFolder> folder, int rank);
  void set_attempt(std::int64_t attempt);
  void set_progress(std::int64_t steps, std::int64_t tokens);
  /// Called once, as the abort becomes known here.
  void write(const AbortCause& cause) noexcept;

 private:
  void write_result(const AbortCause& cause) const noexcept;

  std::mutex mutex_;
  std::shared_ptr<const RunFolder> folder_;
  int rank_ = 0;
  std::int64_t attempt_ = 0;  // 0: not claimed yet
  std::int64_t steps_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep
