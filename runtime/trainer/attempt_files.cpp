// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/attempt_files.h"

#include <cstdio>
#include <utility>

namespace lockstep {

void AttemptFiles::open(std::shared_ptr<const RunFolder> folder, int rank) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
  rank_ = rank;
}

void AttemptFiles::set_attempt(std::int64_t attempt) {
  const std::lock_guard lock(mutex_);
  attempt_ = attempt;
}

void AttemptFiles::set_progress(std::int64_t steps, std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  steps_ = steps;
  tokens_ = tokens;
}

void AttemptFiles::write(const AbortCause& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (!folder_) return;
  folder_->write_cause(attempt_, rank_,
                       {.code = cause.outcome,
                        .kind = cause.kind,
                        .origin_rank = cause.origin_rank,
                        .what = cause.what,
                        .hint = cause.hint});
  if (attempt_ != 0 && rank_ == speaker_of(cause)) write_result(cause);
  folder_->sync_failure(attempt_, rank_);
}

void AttemptFiles::write_result(const AbortCause& cause) const noexcept {
  try {
    folder_->write_result({.code = cause.outcome,
                           .reason = cause.what,
                           .attempt = attempt_,
                           .steps = steps_,
                           .tokens = tokens_});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
  }
}

}  // namespace lockstep
