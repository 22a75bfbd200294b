// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/credential_chain.h"

#include <utility>

#include "lockstep/core/error.h"
#include "runtime/store/s3/credential_endpoints.h"
#include "runtime/store/s3/credential_process.h"

namespace lockstep::s3 {
namespace {

class FixedSource final : public CredentialSource {
 public:
  explicit FixedSource(Credentials credentials) : credentials_(std::move(credentials)) {}
  Credentials fetch() override { return credentials_; }

 private:
  Credentials credentials_;
};

class NoSource final : public CredentialSource {
 public:
  Credentials fetch() override {
    throw ConfigError("there are no credentials for the object store",
                      "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run "
                      "where a role gives them");
  }
};

/// The pair of these variables; null where neither is set. A header cannot hold a line's end.
std::unique_ptr<CredentialSource> from_variables(const Variables& variables, const char* key_id,
                                                 const char* secret, const char* token) {
  Credentials found{.key_id = variables(key_id),
                    .secret = variables(secret),
                    .token = variables(token),
                    .expires = {}};
  if (found.key_id.empty() && found.secret.empty()) return nullptr;
  if (found.key_id.empty() || found.secret.empty()) {
    throw ConfigError(std::string("of ") + key_id + " and " + secret + " only one is set",
                      "set both or neither");
  }
  for (const std::string& text : {found.key_id, found.secret, found.token}) {
    if (text.find_first_of(" \t\r\n") == std::string::npos) continue;
    throw ConfigError(
        std::string("a blank or a line's end is in ") + key_id + ", " + secret + " or " + token,
        "copy the key without it");
  }
  return std::make_unique<FixedSource>(std::move(found));
}

std::string value_in(const Profile& profile, const std::string& name) {
  const auto at = profile.find(name);
  return at == profile.end() ? std::string() : at->second;
}

std::unique_ptr<CredentialSource> from_web_identity(const Settings& settings,
                                                    const Variables& variables,
                                                    const Profile& profile) {
  WebIdentity identity{.endpoint = variables("AWS_ENDPOINT_URL_STS"),
                       .role = variables("AWS_ROLE_ARN"),
                       .token_file = variables("AWS_WEB_IDENTITY_TOKEN_FILE"),
                       .session = variables("AWS_ROLE_SESSION_NAME"),
                       .ca_bundle = settings.ca_bundle};
  if (identity.token_file.empty()) {
    identity.token_file = value_in(profile, "web_identity_token_file");
    identity.role = value_in(profile, "role_arn");
  }
  if (identity.token_file.empty()) return nullptr;
  if (identity.role.empty()) {
    throw ConfigError("a web identity's token is configured without a role", "set AWS_ROLE_ARN");
  }
  if (identity.session.empty()) identity.session = "lockstep";
  if (identity.endpoint.empty()) {
    identity.endpoint = "https://sts." + settings.region + ".amazonaws.com";
  }
  return web_identity_credentials(std::move(identity));
}

std::unique_ptr<CredentialSource> from_profile(const Profile& profile) {
  const Variables in_profile = [&](const char* name) { return value_in(profile, name); };
  if (auto found = from_variables(in_profile, "aws_access_key_id", "aws_secret_access_key",
                                  "aws_session_token")) {
    return found;
  }
  const std::string command = value_in(profile, "credential_process");
  if (!command.empty()) return process_credentials(command);
  for (const char* name : {"role_arn", "sso_session", "sso_start_url"}) {
    if (value_in(profile, name).empty()) continue;
    throw ConfigError(std::string("the profile's ") + name + " is not supported",
                      "use credential_process = aws configure export-credentials --profile NAME");
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<CredentialSource> find_credentials(std::string_view scheme,
                                                   const Settings& settings,
                                                   const Variables& variables,
                                                   const Profile& profile) {
  if (scheme == "oss") {
    auto found = from_variables(variables, "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET",
                                "OSS_SESSION_TOKEN");
    if (found) return found;
    found = from_variables(variables, "ALIBABA_CLOUD_ACCESS_KEY_ID",
                           "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN");
    if (found) return found;
  }
  if (auto found = from_variables(variables, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                  "AWS_SESSION_TOKEN")) {
    return found;
  }
  if (auto found = from_web_identity(settings, variables, profile)) return found;
  if (auto found = from_profile(profile)) return found;
  if (scheme == "oss") return alibaba_machine_credentials(variables);
  if (auto found = container_credentials(variables)) return found;
  // On a machine that is not Amazon's, asking its metadata ends after seconds with a strange error.
  if (variables("AWS_EC2_METADATA_DISABLED") == "true") return std::make_unique<NoSource>();
  return machine_credentials(variables);
}

}  // namespace lockstep::s3
