// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/credential_json.h"

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw StorageError("credentials from " + source + ": " + what,
                     "check what gives credentials there, or set AWS_ACCESS_KEY_ID and "
                     "AWS_SECRET_ACCESS_KEY");
}

std::string text_in(const nlohmann::json& object, const std::string& name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

Credentials parse_credentials(std::string_view text, const CredentialNames& names,
                              const std::string& source) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) refuse(source, "the answer is not a JSON object");
  Credentials made{.key_id = text_in(json, names.key_id),
                   .secret = text_in(json, names.secret),
                   .token = text_in(json, names.token),
                   .expires = {}};
  if (made.key_id.empty() || made.secret.empty()) refuse(source, "the answer lacks a key");
  const std::string expires = text_in(json, names.expires);
  if (expires.empty()) return made;
  made.expires = parse_iso_time(expires);
  if (!made.expires) refuse(source, "the end of their life is not a time");
  return made;
}

}  // namespace lockstep::s3
