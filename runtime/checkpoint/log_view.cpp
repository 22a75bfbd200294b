// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/log_view.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {

CommitInfo info_of(const Commit& commit) {
  return {.seq = commit.seq,
          .epoch = commit.epoch,
          .step = commit.record.step,
          .tokens = commit.record.tokens,
          .bytes = commit.record.bytes,
          .shards = commit.record.shards,
          .time = commit.time,
          .eval_loss = commit.record.eval_loss};
}

std::optional<Record> LogView::add(const std::optional<std::string>& bytes) {
  const std::uint64_t seq = next_seq_++;
  if (!bytes) {
    ++lost_;
    lose("the record is missing");
    return std::nullopt;
  }
  try {
    Record record = decode(*bytes, seq);
    const std::string fault = fault_of(record);
    if (fault.empty()) {
      apply(record);
      return record;
    }
    epoch_ = std::max(epoch_, record.epoch);
    lose(fault);
  } catch (const DataError& error) {
    ++lost_;
    lose(error.what());
  }
  return std::nullopt;
}

std::string LogView::fault_of(const Record& record) const {
  if (!job_.empty() && record.job != job_) return "it belongs to job " + record.job;
  const bool is_job = std::holds_alternative<JobRecord>(record.body);
  if (is_job != (record.seq == 0)) return "a JOB record is the first one, and only the first";
  if (record.epoch < epoch_) {
    return "attempt " + std::to_string(record.epoch) + " wrote after attempt " +
           std::to_string(epoch_) + " had claimed the job";
  }
  if (std::holds_alternative<ClaimRecord>(record.body)) {
    if (record.epoch <= epoch_) return "it claims an epoch that is taken";
    if (record.epoch > next_epoch()) return "it claims an epoch that is too high";
  } else if (record.epoch > epoch_ + lost_) {
    return "attempt " + std::to_string(record.epoch) + " never claimed the job";
  }
  return {};
}

void LogView::apply(const Record& record) {
  if (job_.empty()) job_ = record.job;
  epoch_ = record.epoch;
  if (const auto* job = std::get_if<JobRecord>(&record.body)) fingerprint_ = job->fingerprint;
  if (const auto* claim = std::get_if<ClaimRecord>(&record.body)) {
    meshes_[record.epoch] = claim->mesh;
  }
  if (const auto* commit = std::get_if<CommitRecord>(&record.body)) {
    commits_.push_back({.seq = record.seq,
                        .epoch = record.epoch,
                        .time = record.time,
                        .record = *commit,
                        .status = CommitStatus::live});
  }
  const auto mark = [&](std::uint64_t seq, CommitStatus status) {
    for (Commit& commit : commits_) {
      if (commit.seq == seq) commit.status = status;
    }
  };
  if (const auto* retire = std::get_if<RetireRecord>(&record.body)) {
    for (const std::uint64_t seq : retire->seqs) mark(seq, CommitStatus::retired);
  }
  const auto* note = std::get_if<NoteRecord>(&record.body);
  if (note && note->what == "damaged" && note->commit) mark(*note->commit, CommitStatus::damaged);
}

void LogView::lose(const std::string& what) {
  damages_.push_back(
      {.object = record_key(next_seq_ - 1), .dataset = {}, .block = {}, .what = what});
}

std::optional<CheckpointMesh> LogView::mesh_of(std::uint64_t epoch) const {
  const auto found = meshes_.find(epoch);
  if (found == meshes_.end()) return std::nullopt;
  return found->second;
}

const Commit* LogView::newest(std::optional<std::uint64_t> step) const noexcept {
  const auto found = std::find_if(commits_.rbegin(), commits_.rend(), [&](const Commit& commit) {
    return commit.status == CommitStatus::live && (!step || commit.record.step == *step);
  });
  return found == commits_.rend() ? nullptr : &*found;
}

const Commit* LogView::find(std::uint64_t seq) const noexcept {
  const auto found = std::find_if(commits_.begin(), commits_.end(),
                                  [&](const Commit& commit) { return commit.seq == seq; });
  return found == commits_.end() ? nullptr : &*found;
}

}  // namespace lockstep
