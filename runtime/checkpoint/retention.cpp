// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/retention.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {
namespace {

/// The epoch at the start of a probe object; nothing if it says none.
std::optional<std::uint64_t> probe_epoch(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::uint64_t epoch = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), epoch);
  if (parsed.ec != std::errc()) return std::nullopt;
  return epoch;
}

/// Seqs of the `count` live commits of the lowest eval_loss; of equal ones the newer.
std::set<std::uint64_t> best_commits(const LogView& view, std::uint64_t count) {
  std::vector<std::pair<double, std::uint64_t>> losses;  // newest first
  const auto& commits = view.commits();
  for (auto commit = commits.rbegin(); commit != commits.rend(); ++commit) {
    if (commit->status != CommitStatus::live || !commit->record.eval_loss) continue;
    losses.emplace_back(*commit->record.eval_loss, commit->seq);
  }
  std::stable_sort(losses.begin(), losses.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::set<std::uint64_t> best;
  for (const auto& [loss, seq] : losses) {
    if (best.size() < count) best.insert(seq);
  }
  return best;
}

}  // namespace

std::vector<std::uint64_t> commits_to_retire(const LogView& view, const RetentionRule& rule) {
  const std::set<std::uint64_t> best = best_commits(view, rule.keep_best);
  std::uint64_t live = 0;
  std::vector<std::uint64_t> retired;
  const auto& commits = view.commits();
  for (auto commit = commits.rbegin(); commit != commits.rend(); ++commit) {
    if (commit->status == CommitStatus::retired) continue;
    const bool wanted = live < std::max<std::uint64_t>(rule.keep, 1);
    if (commit->status == CommitStatus::live) ++live;
    const bool is_start = rule.loaded == commit->seq && rule.own_commits < 2;
    if (!wanted && !is_start && !best.contains(commit->seq)) retired.push_back(commit->seq);
  }
  std::reverse(retired.begin(), retired.end());
  return retired;
}

void remove_objects(ObjectStore& store, const Commit& commit) {
  const std::string& manifest = commit.record.manifest.key;
  if (const auto id = save_of(manifest)) {
    for (std::uint64_t writer = 0; writer < commit.record.shards; ++writer) {
      store.remove(shard_key(*id, writer));
    }
  }
  store.remove(manifest);
}

void remove_leftover(ObjectStore& store, const Leftover& leftover) {
  if (leftover.upload.empty()) {
    store.remove(leftover.key);
  } else {
    store.abandon({.key = leftover.key, .id = leftover.upload});
  }
}

std::vector<Leftover> leftovers(ObjectStore& store, const LogView& view, std::uint64_t epoch,
                                std::vector<std::string>& warnings) {
  std::vector<Leftover> found;
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      warnings.emplace_back(error.what());
    }
  };
  std::set<SaveId> committed;
  std::set<SaveId> retired;
  for (const Commit& commit : view.commits()) {
    const auto id = save_of(commit.record.manifest.key);
    if (id) (commit.status == CommitStatus::retired ? retired : committed).insert(*id);
  }
  if (view.has_lost_records()) {
    warnings.emplace_back("records of the log are lost, so shards without a COMMIT stay");
  } else {
    for (const char* prefix : {"s/", "m/"}) {
      try_to([&] {
        for (const ObjectInfo& info : store.list(prefix)) {
          const auto id = save_of(info.key);
          if (!id || committed.contains(*id)) continue;
          if (retired.contains(*id)) {
            found.push_back({info.key, info.size, "its commit is retired"});
          } else if (id->epoch < epoch) {
            found.push_back({info.key, info.size,
                             "attempt " + std::to_string(id->epoch) + " ended before its COMMIT"});
          }
        }
      });
    }
  }
  const auto add = [&](const ObjectInfo& info, std::optional<std::uint64_t> owner,
                       std::uint64_t end) {
    if (!owner || *owner >= end) return;
    found.push_back({info.key, info.size, "attempt " + std::to_string(*owner) + " left it"});
  };
  try_to([&] {
    for (const ObjectInfo& info : store.list("t/")) add(info, temporary_epoch(info.key), epoch);
    // A launch that probed for `epoch` and is not the one that claimed it is dead or fenced.
    for (const ObjectInfo& info : store.list("p/")) {
      add(info, probe_epoch(store.read(info.key)), epoch + 1);
    }
  });
  try_to([&] {
    // What was never completed has no COMMIT: no lost record can hide one.
    for (const UnfinishedObject& upload : store.unfinished("s/")) {
      const auto id = save_of(upload.key);
      if (!id || id->epoch >= epoch) continue;
      found.push_back(
          {.key = upload.key,
           .why = "attempt " + std::to_string(id->epoch) + " never finished this upload",
           .upload = upload.id});
    }
  });
  return found;
}

std::vector<std::string> sweep(ObjectStore& store, const LogView& view, std::uint64_t epoch) {
  std::vector<std::string> warnings;
  for (const Leftover& object : leftovers(store, view, epoch, warnings)) {
    try {
      remove_leftover(store, object);
    } catch (const Error& error) {
      warnings.emplace_back(error.what());
    }
  }
  for (std::string& line : warnings) line.insert(0, "sweep: ");
  return warnings;
}

}  // namespace lockstep
