// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/runtime/object_store.h"
#include "runtime/checkpoint/log_view.h"

namespace lockstep {

/// Reads all records of a log.
LogView read_log(ObjectStore& store);

/// The log as one writer sees it. Of two writers that have read up to n, one creates n + 1; the
/// other reads it and learns whether it is fenced. One thread.
class Log {
 public:
  /// Reads.
  explicit Log(ObjectStore& store);

  const LogView& view() const noexcept { return view_; }
  std::uint64_t epoch() const noexcept { return epoch_; }

  /// Makes the JOB record of an empty log, or adopts what another launch has made meanwhile.
  void ensure_job(const std::string& fingerprint);

  /// Reads what has come to the log. Throws FencedError if another launch has claimed the job.
  void check_unclaimed();

  /// Appends the CLAIM of the next epoch and returns it. Throws FencedError if another launch
  /// claims at the same time and wins.
  std::uint64_t claim(const ClaimRecord& body);

  /// Appends under the claimed epoch and returns the seq. Throws FencedError after a newer CLAIM.
  std::uint64_t append(const RecordBody& body);

 private:
  Record make_record(const RecordBody& body, std::uint64_t epoch) const;
  bool try_append(const Record& record);
  /// A record of somebody else at the tip. Throws FencedError if this launch must stop.
  void take(const std::optional<std::string>& bytes);
  [[noreturn]] void fence(const std::string& what);

  ObjectStore& store_;
  LogView view_;
  std::string host_;
  std::uint64_t epoch_ = 0;
  std::string fenced_;  // by whom; empty: by nobody
};

}  // namespace lockstep
