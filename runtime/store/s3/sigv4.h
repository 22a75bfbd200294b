// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/hash.h"
#include "runtime/store/s3/dialect.h"

namespace lockstep::s3 {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// What a signature is valid for.
struct SigningScope {
  std::string time;  // 20130524T000000Z
  std::string region;
  Dialect dialect = kAws;
};

/// A request as it goes over the wire. All headers given here are signed.
struct SigningRequest {
  std::string method;
  std::string path;          // of encode_path
  std::string query;         // of canonical_query
  Headers headers;           // names in any case and order
  std::string payload_hash;  // lower-case hex SHA-256, or UNSIGNED-PAYLOAD
};

/// The key of a day, a region and a service.
Sha256Digest signing_key(std::string_view secret, const SigningScope& scope);

std::string canonical_request(const SigningRequest& request);

/// Signature Version 4 in the scope's dialect, lower-case hex.
std::string signature(const SigningRequest& request, const SigningScope& scope,
                      std::string_view secret);

/// The value of the Authorization header.
std::string authorization(const SigningRequest& request, const SigningScope& scope,
                          std::string_view key_id, std::string_view secret);

}  // namespace lockstep::s3
