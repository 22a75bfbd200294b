// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/messages.h"

namespace lockstep {

/// One attempt of a job as rank 0 sees it: the log, and what follows from it. Does not communicate.
class Job {
 public:
  /// Reads the log.
  Job(ObjectStore& store, const CheckpointOptions& options);

  /// As Checkpointer::open.
  OpenResult open(const OpenOptions& options);

  /// The newest live commit whose manifest and shard sizes are right; notes others as damaged.
  /// Throws DataError with outcome no_checkpoint if commits are there but none is whole.
  Choice choose();
  /// Whether all shards of a commit are there now, in their sizes.
  bool sees(const Manifest& manifest) const;
  void note_damaged(std::uint64_t seq, const std::string& what);
  /// The state is that of commit `seq` now.
  void loaded(std::uint64_t seq);

  /// Throws FencedError if another launch has claimed the job.
  void check_unclaimed() { log_.check_unclaimed(); }

  /// Writes the manifest and appends the COMMIT, then retires old commits. If it throws before the
  /// COMMIT, the objects of the save are removed.
  SaveResult commit(const SaveId& id, Manifest manifest);

 private:
  void refuse_other_model(const std::vector<ModelTensor>& model) const;
  void refuse_by_policy(ResumePolicy policy) const;
  std::vector<ObjectInfo> see(const Manifest& manifest) const;
  std::vector<std::string> retire();

  ObjectStore& store_;
  CheckpointOptions options_;
  Log log_;
  std::optional<std::uint64_t> loaded_;  // seq
  std::optional<std::uint64_t> parent_;  // seq of the commit that the state descends from
  std::uint64_t own_commits_ = 0;
  std::deque<std::uint64_t> to_delete_;  // seqs: retired, to be deleted after the next COMMIT
  std::vector<std::string> warnings_;    // of choose()
};

}  // namespace lockstep
