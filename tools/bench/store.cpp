// SPDX-License-Identifier: Apache-2.0
// Writing and reading one object of an object store, when told to.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/runtime/object_store.h"
#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

// A shard is written in pieces as small as this, just after its checksum has read them.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10U;
// And read back in blocks, several at once.
constexpr std::size_t kReadBytes = std::size_t{64} << 20U;

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty())
    throw ConfigError("bench store: file \"" + path + "\" is empty or missing",
                      "give --file a file of random bytes");
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

void put(ObjectStore& store, const std::string& key, const std::vector<std::byte>& bytes) {
  const auto writer = store.create(key, bytes.size(), 1);
  for (std::size_t done = 0; done < bytes.size(); done += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, bytes.size() - done);
    writer->write(done, std::span(bytes).subspan(done, count));
  }
  if (writer->commit() == Creation::created) return;
  throw StorageError("bench store: object " + key + " is already there", "remove it");
}

void get(ObjectStore& store, const std::string& key, std::vector<std::byte>& into) {
  for (std::size_t done = 0; done < into.size(); done += kReadBytes) {
    const std::span part = std::span(into).subspan(done, std::min(kReadBytes, into.size() - done));
    if (store.read(key, done, part) == part.size()) continue;
    throw StorageError("bench store: object " + key + " is missing or cut off", "report it");
  }
}

void run(ProcessGroup& group, const BenchOptions& options) {
  if (group.size() != 1) throw ConfigError("bench store: more than one rank", "start it alone");
  const auto store = ObjectStore::open(options.own.text("store"));
  const std::vector<std::byte> bytes = bytes_of(options.own.text("file"));
  const std::string key = "object";
  std::vector<std::byte> read(bytes.size());
  std::string asked;
  while (std::getline(std::cin, asked)) {
    if (asked == "put") store->remove(key);
    if (asked == "get") std::fill(read.begin(), read.end(), std::byte{});
    const double seconds = timed(group, [&] {
      if (asked == "put") put(*store, key, bytes);
      if (asked == "get") get(*store, key, read);
    });
    if (asked == "get" && read != bytes)
      throw DataError("what was read is not what was written", "report it");
    print_line(group, "store",
               {{"op", asked}, {"bytes", bytes.size()}, {"s", seconds}, {"checked", true}});
  }
}

}  // namespace

Bench bench_store() {
  return {.name = "store",
          .help = "an object, written and read as `put` and `get` lines on stdin ask for",
          .keys = {{.name = "store", .default_value = "file:bench-store", .help = "where"},
                   {.name = "file", .default_value = "", .help = "the bytes of the object"}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
