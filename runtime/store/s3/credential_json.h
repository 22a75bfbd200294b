// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "runtime/store/s3/credentials.h"

namespace lockstep::s3 {

/// How a provider calls the members of its answer.
struct CredentialNames {
  std::string key_id = "AccessKeyId";
  std::string secret = "SecretAccessKey";
  std::string token = "Token";
  std::string expires = "Expiration";
};

/// Of the JSON text that `source` (for messages) has given; expiry and token may be missing. Throws
/// StorageError, without the text, where it is something else.
Credentials parse_credentials(std::string_view text, const CredentialNames& names,
                              const std::string& source);

}  // namespace lockstep::s3
