// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/s3_store.h"

#include <string>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/store/object_key.h"
#include "runtime/store/s3/credential_chain.h"
#include "runtime/store/s3/multipart_writer.h"
#include "runtime/store/s3/s3_bucket.h"

namespace lockstep::s3 {
namespace {

class S3Store final : public ObjectStore {
 public:
  S3Store(std::string uri, const Location& location, Settings settings,
          std::unique_ptr<CredentialSource> source)
      : client_(std::move(uri), location.bucket, std::move(settings), std::move(source)),
        bucket_(client_),
        prefix_(location.prefix.empty() ? "" : location.prefix + "/") {}

  std::string uri() const override { return client_.uri(); }
  std::vector<std::string> take_notes() override { return client_.take_notes(); }

  std::optional<std::string> read(std::string_view key) override { return bucket_.get(whole(key)); }
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    return bucket_.get(whole(key), offset, into, etag);
  }
  std::optional<ObjectInfo> stat(std::string_view key) override {
    auto head = bucket_.head(whole(key));
    if (!head) return std::nullopt;
    return ObjectInfo{std::string(key), head->size, std::move(head->etag)};
  }
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t /*epoch*/) override {
    return bucket_.put_if_absent(whole(key), std::as_bytes(std::span(bytes)));
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t /*epoch*/) override {
    return make_writer(bucket_, whole(key), size);
  }
  std::vector<ObjectInfo> list(std::string_view prefix) override {
    std::vector<ObjectInfo> found = bucket_.list(prefix_ + std::string(prefix));
    std::erase_if(found, [&](const ObjectInfo& info) { return !info.key.starts_with(prefix_); });
    for (ObjectInfo& info : found) info.key.erase(0, prefix_.size());
    return found;
  }
  void remove(std::string_view key) override { bucket_.remove(whole(key)); }
  std::vector<UnfinishedObject> unfinished(std::string_view prefix) override {
    std::vector<UnfinishedObject> found;
    for (Upload& upload : bucket_.uploads(prefix_ + std::string(prefix))) {
      if (!upload.key.starts_with(prefix_)) continue;
      found.push_back({.key = upload.key.substr(prefix_.size()), .id = std::move(upload.id)});
    }
    return found;
  }
  void abandon(const UnfinishedObject& object) override {
    bucket_.abort({.key = whole(object.key), .id = object.id});
  }

 private:
  std::string whole(std::string_view key) const {
    check_key(key);
    return prefix_ + std::string(key);
  }

  Client client_;
  Bucket bucket_;
  std::string prefix_;  // "" or "a/b/"
};

}  // namespace

std::unique_ptr<ObjectStore> open_s3_store(std::string_view scheme, std::string_view rest,
                                           const Variables& variables) {
  const Location location = parse_location(rest);
  const Profile profile = read_profile(variables);
  Settings settings = read_settings(scheme, location.bucket, variables, profile);
  auto source = find_credentials(scheme, settings, variables, profile);
  std::string uri = std::string(scheme) + "://" + location.bucket;
  if (!location.prefix.empty()) uri += "/" + location.prefix;
  return std::make_unique<S3Store>(std::move(uri), location, std::move(settings),
                                   std::move(source));
}

}  // namespace lockstep::s3
