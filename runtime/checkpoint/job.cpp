// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/job.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/retention.h"

namespace lockstep {
namespace {

constexpr std::size_t kListed = 20;              // parameters in a message
constexpr std::size_t kRetiredTogether = 100;    // seqs in a record
constexpr std::uint64_t kDeletedTogether = 256;  // objects of retired commits

/// A text that fits into a record.
std::string short_text(const std::string& text) {
  std::string plain = text.substr(0, 1000);
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  return plain;
}

/// Removes the objects of a save that did not become a commit. What cannot be removed is left to
/// the sweep of the next launch.
void remove_save(ObjectStore& store, const SaveId& id, const Manifest& manifest) noexcept {
  const auto remove = [&](const std::string& key) {
    try {
      store.remove(key);
    } catch (const std::exception&) {
      return;
    }
  };
  for (const ManifestShard& shard : manifest.shards) remove(shard.key);
  remove(manifest_key(id));
}

std::string listing(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kListed); ++i) text += "\n  " + lines[i];
  if (lines.size() > kListed) {
    text += "\n  and " + std::to_string(lines.size() - kListed) + " more";
  }
  return text;
}

}  // namespace

Job::Job(ObjectStore& store, const CheckpointOptions& options)
    : store_(store), options_(options), log_(store) {}

OpenResult Job::open(const OpenOptions& options) {
  const std::string fingerprint = model_fingerprint(options.model);
  refuse_other_model(options.model);
  refuse_by_policy(options.resume);
  try {
    probe(store_, log_.view().next_epoch());
  } catch (const ConfigError&) {
    log_.check_unclaimed();  // the sweep of one that claims takes the keys of such probes away
    throw;
  }
  log_.ensure_job(fingerprint);
  refuse_other_model(options.model);
  const CheckpointMesh& mesh = options_.mesh;
  const std::uint64_t epoch =
      log_.claim({.world = mesh.dp * mesh.tp, .mesh = mesh, .code = options.code});

  OpenResult result{.attempt = epoch, .job = log_.view().job(), .resume = {}, .warnings = {}};
  for (const Damage& damage : log_.view().damages()) {
    result.warnings.push_back("log: " + to_string(damage));
  }
  // Only now: until the CLAIM is in the log, an older attempt may still commit.
  if (const Commit* newest = log_.view().newest()) result.resume = info_of(*newest);
  for (std::string& line : sweep(store_, log_.view(), epoch)) {
    result.warnings.push_back(std::move(line));
  }
  for (std::string& line : store_.take_notes()) result.warnings.push_back(std::move(line));
  return result;
}

void Job::refuse_other_model(const std::vector<ModelTensor>& model) const {
  const LogView& view = log_.view();
  const std::string mine = model_fingerprint(model);
  if (view.empty() || view.fingerprint() == mine) return;
  std::string details = "\n  (no commit tells its parameters)";
  if (const Commit* newest = view.newest()) {
    try {
      const auto saved = model_of(read_manifest(store_, view, *newest));
      if (model_fingerprint(saved) == mine)
        return;  // the JOB record is lost, the model is the same
      details = listing(differences(saved, model));
    } catch (const DataError& error) {
      details = std::string("\n  (its newest manifest cannot be read: ") + error.what() + ")";
    }
  } else if (view.fingerprint().empty()) {
    return;  // nothing is left to compare with
  }
  throw ConfigError("store " + store_.uri() + " holds a job with another model:" + details,
                    "use the model of the first start, or another run folder");
}

void Job::refuse_by_policy(ResumePolicy policy) const {
  const LogView& view = log_.view();
  const bool has_commits = !view.commits().empty();
  if (policy == ResumePolicy::never && has_commits) {
    throw ConfigError("store " + store_.uri() + " holds commits and resume is never",
                      "use another run folder, or resume = auto");
  }
  // A lost record may have been the COMMIT of a manifest that is there.
  const bool lost_commit = !has_commits && view.has_lost_records() && !store_.list("m/").empty();
  const bool must = policy == ResumePolicy::must || has_commits || lost_commit;
  if (!must || view.newest()) return;
  throw DataError(
      "store " + store_.uri() + " has no usable checkpoint",
      has_commits || lost_commit
          ? "all are damaged: see `lockstep ckpt verify`; a new run needs another folder"
          : "resume = must needs one: check run and store, or use resume = auto",
      Outcome::no_checkpoint);
}

std::vector<ObjectInfo> Job::see(const Manifest& manifest) const {
  std::vector<ObjectInfo> seen;
  for (const ManifestShard& shard : manifest.shards) {
    const auto info = store_.stat(shard.key);
    if (!info || info->size != shard.size) {
      throw DamageError({.object = shard.key,
                         .dataset = {},
                         .block = {},
                         .what = info ? "the shard has " + std::to_string(info->size) +
                                            " bytes, not " + std::to_string(shard.size)
                                      : std::string("the shard is missing")});
    }
    seen.push_back(*info);
  }
  return seen;
}

bool Job::sees(const Manifest& manifest) const {
  try {
    see(manifest);
    return true;
  } catch (const DamageError&) {
    return false;
  }
}

Choice Job::choose() {
  while (true) {
    const Commit* newest = log_.view().newest();
    if (!newest && log_.view().commits().empty()) {
      return {.commit = {}, .manifest = {}, .warnings = std::exchange(warnings_, {})};
    }
    if (!newest) {
      throw DataError("store " + store_.uri() + " has no whole checkpoint:" + listing(warnings_),
                      "see `lockstep ckpt verify`; a new run needs another folder",
                      Outcome::no_checkpoint);
    }
    try {
      const auto bytes = store_.read(newest->record.manifest.key);
      see(check_manifest(bytes, log_.view(), *newest));
      return {.commit = info_of(*newest), .manifest = *bytes, .warnings = warnings_};
    } catch (const DamageError& error) {
      note_damaged(newest->seq, error.what());
    }
  }
}

void Job::note_damaged(std::uint64_t seq, const std::string& what) {
  const Commit* commit = log_.view().find(seq);
  const std::string step = commit ? std::to_string(commit->record.step) : "?";
  warnings_.push_back("the checkpoint of step " + step +
                      " is damaged, taking an older one: " + short_text(what));
  log_.append(NoteRecord{.what = "damaged", .text = short_text(what), .commit = seq});
}

void Job::loaded(std::uint64_t seq) {
  loaded_ = seq;
  parent_ = seq;
}

SaveResult Job::commit(const SaveId& id, Manifest manifest) {
  const std::string key = manifest_key(id);
  bool may_be_committed = false;
  std::uint64_t seq = 0;
  try {
    // What an older attempt has written the newer one sweeps away: then shards are missing.
    check_unclaimed();
    try {
      const std::vector<ObjectInfo> seen = see(manifest);
      for (std::size_t i = 0; i < seen.size(); ++i) manifest.shards[i].etag = seen[i].etag;
    } catch (const DamageError& error) {
      throw StorageError(
          std::string("rank 0 cannot see what another rank has written: ") + error.what(),
          "the store is not shared by all hosts: set store to a shared folder");
    }
    const std::string text = encode(manifest);
    if (store_.create_if_absent(key, text, id.epoch) == Creation::exists) {
      throw StorageError("manifest " + key + " is already there in store " + store_.uri(),
                         "another process writes under the same attempt number; stop one of them");
    }
    may_be_committed = true;
    seq = log_.append(
        CommitRecord{.step = id.step,
                     .tokens = manifest.state.tokens,
                     .manifest = {.key = key, .size = text.size(), .sha256 = to_hex(sha256(text))},
                     .bytes = manifest.bytes,
                     .shards = manifest.shards.size(),
                     .parent_seq = parent_,
                     .eval_loss = manifest.state.eval_loss});
  } catch (const FencedError&) {
    remove_save(store_, id, manifest);
    throw;
  } catch (const std::exception&) {
    // A COMMIT whose answer is lost may be in the log: its objects stay.
    if (!may_be_committed) remove_save(store_, id, manifest);
    throw;
  }
  parent_ = seq;
  ++own_commits_;
  SaveResult result{.commit = info_of(*log_.view().find(seq)), .warnings = {}};
  result.warnings = retire();
  for (std::string& line : store_.take_notes()) result.warnings.push_back(std::move(line));
  return result;
}

std::vector<std::string> Job::retire() {
  std::vector<std::string> warnings;
  try {
    // The rest with later saves: this one must end before it looks as if the store did not answer.
    std::uint64_t deleted = 0;
    while (!to_delete_.empty() && deleted < kDeletedTogether) {
      const Commit& commit = *log_.view().find(to_delete_.front());
      to_delete_.pop_front();  // what fails now is left to the sweep of the next launch
      remove_objects(store_, commit);
      deleted += commit.record.shards + 1;
    }
    const std::vector<std::uint64_t> seqs =
        commits_to_retire(log_.view(), {.keep = options_.keep,
                                        .keep_best = options_.keep_best,
                                        .loaded = loaded_,
                                        .own_commits = own_commits_});
    const std::string reason =
        "keep " + std::to_string(options_.keep) + ", best " + std::to_string(options_.keep_best);
    for (std::size_t i = 0; i < seqs.size(); i += kRetiredTogether) {
      const std::size_t end = std::min(seqs.size(), i + kRetiredTogether);
      const std::vector<std::uint64_t> some(seqs.begin() + static_cast<std::ptrdiff_t>(i),
                                            seqs.begin() + static_cast<std::ptrdiff_t>(end));
      log_.append(RetireRecord{.seqs = some, .reason = reason});
      to_delete_.insert(to_delete_.end(), some.begin(), some.end());
    }
  } catch (const StorageError& error) {
    warnings.push_back(std::string("retention: ") + error.what());
  }
  return warnings;
}

}  // namespace lockstep
