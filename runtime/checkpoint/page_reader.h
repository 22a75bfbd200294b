// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/object_store.h"

namespace lockstep {

/// An object as it was when it was first looked at.
struct SeenObject {
  std::string key;
  std::string etag = {};  // empty where the store has none
};

/// Reads small pieces of objects by whole pages, so that thousands of them cost a few requests.
/// Large pieces go straight through. Keeps the pages that were used last. One thread.
class PageReader {
 public:
  explicit PageReader(ObjectStore& store) : store_(store) {}

  /// As ObjectStore::read.
  std::optional<std::size_t> read(const SeenObject& object, std::uint64_t offset,
                                  std::span<std::byte> into);
  /// What is read next comes from the store.
  void forget() { pages_.clear(); }

 private:
  struct Page {
    std::string key;
    std::uint64_t begin = 0;
    std::vector<std::byte> bytes;  // fewer than a page at the object's end
  };

  /// The page at `begin`, now the first in the list; nullptr where there is no object.
  const Page* page(const SeenObject& object, std::uint64_t begin);

  ObjectStore& store_;
  std::list<Page> pages_;  // the one used last is first
};

}  // namespace lockstep
