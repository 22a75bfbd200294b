// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/checkpoint/record.h"

namespace lockstep {

/// A COMMIT and what later records made of it.
struct Commit {
  std::uint64_t seq = 0;
  std::uint64_t epoch = 0;
  std::string time;
  CommitRecord record;
  CommitStatus status = CommitStatus::live;
};

CommitInfo info_of(const Commit& commit);

/// What a log says, record by record: a pure function of the bytes. Damaged and missing records are
/// remembered, not fatal.
class LogView {
 public:
  /// Records come in order, from seq 0; no bytes: the object is missing. Returns the record if it
  /// is one that counts. Throws ConfigError for a later format.
  std::optional<Record> add(const std::optional<std::string>& bytes);

  std::uint64_t next_seq() const noexcept { return next_seq_; }
  bool empty() const noexcept { return next_seq_ == 0; }
  /// Of the JOB record, else of the first record that can be read; may be empty.
  const std::string& job() const noexcept { return job_; }
  /// Of the model; empty if the JOB record cannot be read.
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  /// Highest epoch read.
  std::uint64_t epoch() const noexcept { return epoch_; }
  /// What the next CLAIM takes: a record that cannot be read may have been a CLAIM.
  std::uint64_t next_epoch() const noexcept { return 1 + epoch_ + lost_; }
  bool has_lost_records() const noexcept { return lost_ > 0; }
  /// The mesh of an attempt; nothing if its CLAIM cannot be read.
  std::optional<CheckpointMesh> mesh_of(std::uint64_t epoch) const;

  const std::vector<Commit>& commits() const noexcept { return commits_; }
  /// The live commit of the highest seq, of `step` if given; null if there is none.
  const Commit* newest(std::optional<std::uint64_t> step = {}) const noexcept;
  const Commit* find(std::uint64_t seq) const noexcept;
  const std::vector<Damage>& damages() const noexcept { return damages_; }

 private:
  std::string fault_of(const Record& record) const;
  void apply(const Record& record);
  void lose(const std::string& what);

  std::uint64_t next_seq_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t lost_ = 0;
  std::string job_;
  std::string fingerprint_;
  std::map<std::uint64_t, CheckpointMesh> meshes_;
  std::vector<Commit> commits_;
  std::vector<Damage> damages_;
};

}  // namespace lockstep
