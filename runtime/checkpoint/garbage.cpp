// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/log.h"
#include "runtime/checkpoint/retention.h"

namespace lockstep {
namespace {

// What the newest attempt, which may be running, has written without a COMMIT so far.
void count_kept(ObjectStore& store, const LogView& view, GarbageReport& report) {
  for (const char* prefix : {"s/", "m/"}) {
    for (const ObjectInfo& info : store.list(prefix)) {
      const auto id = save_of(info.key);
      if (!id || id->epoch < view.epoch()) continue;
      bool has_commit = false;
      for (const Commit& commit : view.commits()) {
        has_commit = has_commit || save_of(commit.record.manifest.key) == id;
      }
      if (has_commit) continue;
      ++report.kept_objects;
      report.kept_bytes += info.size;
    }
  }
}

}  // namespace

GarbageReport collect_garbage(ObjectStore& store, GarbageMode mode) {
  // The log before the objects: a COMMIT of an attempt before the newest CLAIM is then in the view.
  const LogView view = read_log(store);
  if (view.empty()) {
    throw DataError("store " + store.uri() + " has no log", "check the path of the run or store",
                    Outcome::no_checkpoint);
  }
  GarbageReport report{.objects = {}, .attempt = view.epoch(), .log_damages = view.damages()};
  const std::vector<Leftover> found = leftovers(store, view, view.epoch(), report.warnings);
  for (const Leftover& object : found) {
    report.objects.push_back({.key = object.key, .size = object.size, .why = object.why});
  }
  count_kept(store, view, report);
  if (mode == GarbageMode::list) return report;
  for (std::size_t i = 0; i < found.size(); ++i) {
    try {
      remove_leftover(store, found[i]);
      report.objects[i].removed = true;
    } catch (const Error& error) {
      report.warnings.emplace_back(error.what());
    }
  }
  return report;
}

}  // namespace lockstep
