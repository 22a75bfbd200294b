// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/object_store.h"

namespace lockstep {
namespace {

constexpr int kRacers = 16;
constexpr std::uint64_t kLargeBytes = std::uint64_t{40} << 20U;  // two parts of a multipart upload

/// Of many who create one key at once, how many were told that they did.
int winners(ObjectStore& store, const std::string& key) {
  std::atomic<int> created{0};
  std::vector<std::thread> racers;
  racers.reserve(kRacers);
  for (int racer = 0; racer < kRacers; ++racer) {
    racers.emplace_back([&, racer] {
      try {
        const std::string body = "0 " + std::to_string(racer) + "\n";
        if (store.create_if_absent(key, body, 0) == Creation::created) ++created;
      } catch (const Error&) {
        return;  // neither won nor lost
      }
    });
  }
  for (std::thread& racer : racers) racer.join();
  return created;
}

bool large_object_appears_whole(ObjectStore& store, const std::string& key) {
  const std::string tail(1000, 't');
  const std::string head(1000, 'h');
  const auto writer = store.create(key, kLargeBytes, 0);
  writer->write(kLargeBytes - tail.size(), std::as_bytes(std::span(tail)));
  writer->write(0, std::as_bytes(std::span(head)));
  if (store.size(key)) return false;
  if (writer->commit() != Creation::created) return false;
  std::string found(1000, '?');
  const auto bytes = std::as_writable_bytes(std::span(found));
  return store.size(key) == kLargeBytes && store.read(key, 0, bytes) == 1000U && found == head &&
         store.read(key, kLargeBytes - 1000, bytes) == 1000U && found == tail;
}

bool large_object_is_created_once(ObjectStore& store, const std::string& key) {
  const auto writer = store.create(key, kLargeBytes, 0);
  return writer->commit() == Creation::exists;
}

bool dead_uploads_can_be_found(ObjectStore& store, const std::string& key) {
  const auto writer = store.create(key, kLargeBytes, 0);
  for (const UnfinishedObject& object : store.unfinished(key)) store.abandon(object);
  return store.unfinished(key).empty();
}

}  // namespace

std::vector<ProbeFinding> probe_report(ObjectStore& store) {
  const std::string base = "p/" + random_hex(16);
  std::vector<ProbeFinding> findings;
  const auto check = [&](const char* what, bool needed, const std::function<bool()>& holds) {
    ProbeFinding finding{.what = what, .needed = needed};
    try {
      finding.holds = holds();
    } catch (const Error& error) {
      finding.error = error.what();
      finding.hint = error.hint();
    }
    findings.push_back(finding);
  };
  const std::string small = base + ".a";
  const std::string large = base + ".c";
  check("a new object can be created", true,
        [&] { return store.create_if_absent(small, "0 1\n", 0) == Creation::created; });
  // Without credentials, a bucket or permission all the rest fails alike.
  if (!findings.back().error.empty()) return findings;
  check("an object is created only once", true,
        [&] { return store.create_if_absent(small, "0 2\n", 0) == Creation::exists; });
  check("it reads back as it was written", true, [&] { return store.read(small) == "0 1\n"; });
  check("a listing shows it", true, [&] { return store.list(small).size() == 1; });
  check("of 16 who create one key at once exactly one wins", true,
        [&] { return winners(store, base + ".b") == 1; });
  check("a large object appears whole or not at all", true,
        [&] { return large_object_appears_whole(store, large); });
  check("a large object is not overwritten", true,
        [&] { return large_object_is_created_once(store, large); });
  check("uploads of dead attempts can be found and removed", false,
        [&] { return dead_uploads_can_be_found(store, base + ".d"); });
  check("objects can be removed", true, [&] {
    for (const char* end : {".a", ".b", ".c"}) store.remove(base + end);
    return store.list(base).empty();
  });
  return findings;
}

}  // namespace lockstep
