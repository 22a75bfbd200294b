// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/object_store.h"

#include <cstdio>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/file_store.h"
#include "runtime/store/memory_store.h"
#include "runtime/store/object_key.h"
#include "runtime/store/s3/s3_store.h"
#include "runtime/store/s3/variables.h"

namespace lockstep {
namespace {

bool good_part(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.find('\0') == std::string_view::npos;
}

void refuse(const ObjectStore& store, const std::string& what) {
  throw ConfigError("store " + store.uri() + ": " + what,
                    "two launches of a job could overwrite each other's checkpoints here; use a "
                    "file system or an object store that creates a name only once");
}

}  // namespace

bool is_key(std::string_view key) {
  for (;;) {
    const std::size_t slash = key.find('/');
    if (!good_part(key.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    key.remove_prefix(slash + 1);
  }
}

void check_key(std::string_view key) {
  if (is_key(key)) return;
  throw UsageError("object key \"" + std::string(key) + "\" is not a relative name",
                   "parts are separated by one '/' and are never empty, '.' or '..'");
}

std::string temporary_key(std::uint64_t epoch) {
  std::string digits = std::to_string(epoch);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "t/" + digits + "." + random_hex(16);
}

std::unique_ptr<ObjectStore> ObjectStore::open(std::string_view uri) {
  const std::size_t colon = uri.find(':');
  const std::string scheme(uri.substr(0, colon == std::string_view::npos ? 0 : colon));
  const std::string rest(uri.substr(colon == std::string_view::npos ? 0 : colon + 1));
  const std::string quoted = "store \"" + std::string(uri) + "\"";
  if (scheme == "file" || scheme == "mem") {
    if (rest.empty()) {
      throw ConfigError(quoted + " names nothing", "give file:PATH or mem:NAME");
    }
    if (scheme == "file") return std::make_unique<FileStore>(rest);
    return open_memory_store(rest);
  }
  if (scheme == "s3" || scheme == "oss") {
    return s3::open_s3_store(scheme, rest, s3::process_variables());
  }
  throw ConfigError(quoted + (scheme.empty() ? " has no scheme" : " has an unknown scheme"),
                    "give file:PATH, s3://BUCKET/PREFIX, oss://BUCKET/PREFIX or mem:NAME");
}

void probe(ObjectStore& store, std::uint64_t epoch) {
  const std::string nonce = random_hex(16);
  const std::string first = "p/" + nonce + ".a";
  const std::string second = "p/" + nonce + ".b";
  // The sweep of a newer launch tells by this text whether the probe is over.
  const std::string text = std::to_string(epoch);
  const auto create = [&](const std::string& key, const std::string& body) {
    return store.create_if_absent(key, body, epoch);
  };
  const bool created = create(first, text + " 1\n") == Creation::created;
  const bool refused = create(first, text + " 2\n") == Creation::exists;
  const auto kept = store.read(first);
  const bool other = create(second, text + " 3\n") == Creation::created;
  store.remove(first);
  store.remove(second);
  if (!created || !other) refuse(store, "a new object could not be created");
  if (!refused) refuse(store, "an object was created twice under one name");
  if (kept != text + " 1\n") refuse(store, "an object reads back as something else");
}

}  // namespace lockstep
