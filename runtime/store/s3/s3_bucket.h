// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/object_store.h"
#include "runtime/store/s3/client.h"

namespace lockstep::s3 {

struct ObjectHead {
  std::uint64_t size = 0;
  std::string nonce;  // of its writer; empty where another program wrote it
  std::string etag;   // without quotes; empty where it does not stand for each byte
};

struct UploadedPart {
  std::uint64_t number = 0;
  std::string etag;
};

/// A multipart upload that is neither complete nor aborted.
struct Upload {
  std::string key;
  std::string id;
};

/// The operations on a bucket, by whole keys. Throws StorageError where one fails. Any thread.
class Bucket {
 public:
  explicit Bucket(Client& client) : client_(client) {}
  const Settings& settings() const noexcept { return client_.settings(); }

  std::optional<std::string> get(const std::string& key);
  std::optional<std::size_t> get(const std::string& key, std::uint64_t offset,
                                 std::span<std::byte> into, std::string_view etag);
  std::optional<ObjectHead> head(const std::string& key);
  std::vector<ObjectInfo> list(const std::string& prefix);
  void remove(const std::string& key);

  /// Of many writers of one key exactly one is told `created`.
  Creation put_if_absent(const std::string& key, const Body& body);

  Upload begin_upload(const std::string& key, const std::string& nonce);
  /// `md5`: of the body, which the store compares; without it the signature covers a SHA-256.
  UploadedPart upload_part(const Upload& upload, std::uint64_t number, const Body& body,
                           const std::optional<Md5Digest>& md5);
  /// Not atomic on every store: some ignore the condition. For keys of one writer only.
  Creation complete(const Upload& upload, const std::vector<UploadedPart>& parts,
                    const std::string& nonce);
  void abort(const Upload& upload);
  std::vector<Upload> uploads(const std::string& prefix);

 private:
  Call call(std::string operation, std::string method, const std::string& key) const;
  Headers creating(const std::string& nonce) const;

  Client& client_;
};

}  // namespace lockstep::s3
