// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/memory_store.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/store/object_key.h"

namespace lockstep {
namespace {

struct Object {
  std::string bytes;
  std::string etag;
};
using Content = std::shared_ptr<const Object>;

struct Objects {
  std::mutex mutex;
  std::map<std::string, Content, std::less<>> by_key;
  std::uint64_t created = 0;

  Creation add(std::string_view key, std::string bytes) {
    const std::lock_guard lock(mutex);
    if (by_key.contains(key)) return Creation::exists;
    const std::string etag = std::to_string(++created);
    by_key.emplace(key, std::make_shared<const Object>(Object{std::move(bytes), etag}));
    return Creation::created;
  }

  Content find(std::string_view key) {
    const std::lock_guard lock(mutex);
    const auto found = by_key.find(key);
    return found == by_key.end() ? nullptr : found->second;
  }
};

class MemoryWriter final : public ObjectWriter {
 public:
  MemoryWriter(std::shared_ptr<Objects> objects, std::string_view key, std::uint64_t size)
      : objects_(std::move(objects)), key_(key), bytes_(size, '\0') {}

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset > bytes_.size() || bytes.size() > bytes_.size() - offset) {
      throw UsageError("object " + key_ + ": a piece lies beyond its size",
                       "create the object with its whole size");
    }
    if (!bytes.empty()) std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
  }

  Creation commit() override { return objects_->add(key_, std::move(bytes_)); }

 private:
  std::shared_ptr<Objects> objects_;
  std::string key_;
  std::string bytes_;
};

class MemoryStore final : public ObjectStore {
 public:
  MemoryStore(std::string name, std::shared_ptr<Objects> objects)
      : name_(std::move(name)), objects_(std::move(objects)) {}

  std::string uri() const override { return "mem:" + name_; }

  std::optional<std::string> read(std::string_view key) override {
    check_key(key);
    const Content content = objects_->find(key);
    if (!content) return std::nullopt;
    return content->bytes;
  }

  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    check_key(key);
    const Content content = objects_->find(key);
    if (!content) return std::nullopt;
    if (!etag.empty() && etag != content->etag) throw ObjectChangedError(uri(), key);
    const std::string& bytes = content->bytes;
    if (offset >= bytes.size()) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(into.size(), bytes.size() - offset);
    if (count > 0) std::memcpy(into.data(), bytes.data() + offset, count);
    return count;
  }

  std::optional<ObjectInfo> stat(std::string_view key) override {
    check_key(key);
    const Content content = objects_->find(key);
    if (!content) return std::nullopt;
    return ObjectInfo{std::string(key), content->bytes.size(), content->etag};
  }

  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t /*epoch*/) override {
    check_key(key);
    return objects_->add(key, std::string(bytes));
  }

  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t /*epoch*/) override {
    check_key(key);
    return std::make_unique<MemoryWriter>(objects_, key, size);
  }

  std::vector<ObjectInfo> list(std::string_view prefix) override {
    const std::lock_guard lock(objects_->mutex);
    std::vector<ObjectInfo> found;
    for (auto at = objects_->by_key.lower_bound(prefix);
         at != objects_->by_key.end() && at->first.starts_with(prefix); ++at) {
      found.push_back({at->first, at->second->bytes.size(), at->second->etag});
    }
    return found;
  }

  void remove(std::string_view key) override {
    check_key(key);
    const std::lock_guard lock(objects_->mutex);
    const auto found = objects_->by_key.find(key);
    if (found != objects_->by_key.end()) objects_->by_key.erase(found);
  }
  std::vector<UnfinishedObject> unfinished(std::string_view /*prefix*/) override { return {}; }
  void abandon(const UnfinishedObject& /*object*/) override {}

 private:
  std::string name_;
  std::shared_ptr<Objects> objects_;
};

}  // namespace

std::unique_ptr<ObjectStore> open_memory_store(const std::string& name) {
  // The one thing of this kind: a name in the memory of a process can only be known process-wide.
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Objects>> stores;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Objects>& objects = stores[name];
  if (!objects) objects = std::make_shared<Objects>();
  return std::make_unique<MemoryStore>(name, objects);
}

}  // namespace lockstep
