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

}  // namespace

std::vector<std::uint64_t> commits_to_retire(const LogView& view, const RetentionRule& rule) {
  std::uint64_t live = 0;
  std::vector<std::uint64_t> retired;
  const auto& commits = view.commits();
  for (auto commit = commits.rbegin(); commit != commits.rend(); ++commit) {
    if (commit->status == CommitStatus::retired) continue;
    const bool wanted = live < std::max<std::uint64_t>(rule.keep, 1);
    if (commit->status == CommitStatus::live) ++live;
    const bool is_start = rule.loaded == commit->seq && rule.own_commits < 2;
    if (!wanted && !is_start) retired.push_back(commit->seq);
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

std::vector<std::string> sweep(ObjectStore& store, const LogView& view, std::uint64_t epoch) {
  std::vector<std::string> warnings;
  const auto try_to = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      warnings.push_back(std::string("sweep: ") + error.what());
    }
  };
  std::set<SaveId> committed;
  for (const Commit& commit : view.commits()) {
    const auto id = save_of(commit.record.manifest.key);
    if (id && commit.status != CommitStatus::retired) committed.insert(*id);
  }
  if (view.has_lost_records()) {
    warnings.emplace_back("sweep: records of the log are lost, so shards without a COMMIT stay");
  } else {
    for (const char* prefix : {"s/", "m/"}) {
      try_to([&] {
        for (const ObjectInfo& info : store.list(prefix)) {
          const auto id = save_of(info.key);
          if (id && id->epoch < epoch && !committed.contains(*id)) {
            try_to([&] { store.remove(info.key); });
          }
        }
      });
    }
  }
  try_to([&] {
    for (const ObjectInfo& info : store.list("t/")) {
      const auto owner = temporary_epoch(info.key);
      if (owner && *owner < epoch) try_to([&] { store.remove(info.key); });
    }
    for (const ObjectInfo& info : store.list("p/")) {
      const auto owner = probe_epoch(store.read(info.key));
      if (owner && *owner < epoch) try_to([&] { store.remove(info.key); });
    }
  });
  return warnings;
}

}  // namespace lockstep
