// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/store/s3/times.h"

namespace lockstep::s3 {

struct Credentials {
  std::string key_id;
  std::string secret;
  std::string token;                // of temporary ones
  std::optional<WallTime> expires;  // nothing: never
  bool operator==(const Credentials&) const = default;
};

/// Where credentials come from. Not thread-safe.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  CredentialSource(const CredentialSource&) = delete;
  CredentialSource& operator=(const CredentialSource&) = delete;

  /// Throws StorageError where it cannot be asked, ConfigError where it refuses.
  virtual Credentials fetch() = 0;

 protected:
  CredentialSource() = default;
};

/// Credentials that are fetched again before they end. One flight at a time; any thread.
class CredentialCache {
 public:
  using Now = std::function<WallTime()>;

  explicit CredentialCache(std::unique_ptr<CredentialSource> source,
                           Now now = std::chrono::system_clock::now);

  /// Good ones: while the source fails, the old until they end. Throws its error afterwards.
  Credentials get();

  /// The store has refused `used` as expired: whether get() gives others now.
  bool renew(const Credentials& used);

 private:
  bool due(WallTime now) const;
  void fetch(WallTime now);

  std::unique_ptr<CredentialSource> source_;
  Now now_;
  std::mutex mutex_;
  std::optional<Credentials> held_;
  WallTime next_;  // when to ask again
};

}  // namespace lockstep::s3
