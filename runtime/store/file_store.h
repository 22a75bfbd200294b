// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/object_store.h"

namespace lockstep {

/// Objects are files below a folder. A new one is written under a temporary name, synced, and given
/// its own by link(2), which fails if the name is taken: that is the create-if-absent.
class FileStore final : public ObjectStore {
 public:
  explicit FileStore(const std::filesystem::path& root);

  std::string uri() const override;
  std::optional<std::string> read(std::string_view key) override;
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override;
  std::optional<ObjectInfo> stat(std::string_view key) override;
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t epoch) override;
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t epoch) override;
  std::vector<ObjectInfo> list(std::string_view prefix) override;
  void remove(std::string_view key) override;
  std::vector<UnfinishedObject> unfinished(std::string_view prefix) override;
  void abandon(const UnfinishedObject& object) override;

 private:
  std::filesystem::path path_of(std::string_view key) const;

  std::filesystem::path root_;
};

}  // namespace lockstep
