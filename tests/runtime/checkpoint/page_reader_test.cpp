// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/page_reader.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

std::string noise(std::size_t bytes) {
  std::mt19937 random(7);
  std::string made(bytes, '\0');
  for (char& c : made) c = static_cast<char>(random());
  return made;
}

TEST(PageReader, ReadsWhatTheStoreHoldsWhereverAPageEnds) {
  const auto store = ObjectStore::open("mem:page reader");
  const std::string a = noise((std::size_t{9} << 20U) + 17);
  store->create_if_absent("a", a, 1);
  store->create_if_absent("b", "short", 1);
  PageReader reader(*store);
  std::mt19937 random(8);
  for (int i = 0; i < 2000; ++i) {
    const bool is_long = i % 50 == 0;
    std::string found(random() % (is_long ? 3U << 20U : 5000U), '?');
    const std::size_t offset = random() % (a.size() + 100);
    const auto got = reader.read({"a"}, offset, std::as_writable_bytes(std::span(found)));
    const std::string expected = offset < a.size() ? a.substr(offset, found.size()) : "";
    ASSERT_EQ(got, expected.size());
    ASSERT_EQ(found.substr(0, *got), expected);
  }
  std::string found(5, '?');
  EXPECT_EQ(reader.read({"b"}, 0, std::as_writable_bytes(std::span(found))), 5U);
  EXPECT_EQ(found, "short");
  EXPECT_EQ(reader.read({"none"}, 0, std::as_writable_bytes(std::span(found))), std::nullopt);
}

TEST(PageReader, AsksTheStoreAgainForWhatItHasForgotten) {
  const auto store = ObjectStore::open("mem:page reader that forgets");
  store->create_if_absent("a", "old", 1);
  PageReader reader(*store);
  std::string found(3, '?');
  const auto bytes = std::as_writable_bytes(std::span(found));
  reader.read({"a"}, 0, bytes);
  store->remove("a");
  store->create_if_absent("a", "new", 1);
  reader.read({"a"}, 0, bytes);
  EXPECT_EQ(found, "old");
  reader.forget();
  reader.read({"a"}, 0, bytes);
  EXPECT_EQ(found, "new");
}

TEST(PageReader, DoesNotMixTwoObjectsOfOneName) {
  const auto store = ObjectStore::open("mem:page reader of one object");
  store->create_if_absent("a", "old", 1);
  const SeenObject seen{.key = "a", .etag = store->stat("a")->etag};
  store->remove("a");
  store->create_if_absent("a", "new", 1);
  std::string found(3, '?');
  PageReader reader(*store);
  EXPECT_THROW(reader.read(seen, 0, std::as_writable_bytes(std::span(found))), ObjectChangedError);
}

}  // namespace
}  // namespace lockstep
