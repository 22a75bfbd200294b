// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/credential_endpoints.h"

#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/store/s3/credential_json.h"
#include "runtime/store/s3/http.h"
#include "runtime/store/s3/uri.h"
#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

constexpr std::chrono::seconds kDeadline(3);  // of a question to something on this machine
constexpr std::chrono::seconds kTokenServiceDeadline(15);
constexpr int kTries = 3;

/// A 200; a failing endpoint is asked again. Throws StorageError that names the source.
HttpAnswer ask(Http& http, const HttpRequest& request, const std::string& source) {
  std::string why;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
    HttpAnswer answer = http.send(request);
    if (answer.whole() && answer.status == 200) return answer;
    why = answer.fault.empty() ? "HTTP " + std::to_string(answer.status) : answer.fault;
    if (answer.status >= 400 && answer.status < 500) break;
  }
  throw StorageError("credentials from " + source + ": " + why,
                     "give this machine or container a role, or set AWS_ACCESS_KEY_ID and "
                     "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE");
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find_first_of("\r\n"));
}

std::string content_of(const std::string& path, const char* variable) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  text = first_line(text);
  if (!text.empty()) return text;
  throw ConfigError(std::string(variable) + ": file " + path + " cannot be read or is empty",
                    "mount the token there, or correct the variable");
}

/// Without proxies: these addresses are this machine's own.
class LocalSource : public CredentialSource {
 protected:
  LocalSource() : http_({.ca_bundle = {}, .use_proxies = false}) {}

  HttpAnswer get(const std::string& url, const Headers& headers, const std::string& source) {
    HttpRequest request;
    request.method = "GET";
    request.url = url;
    request.headers = headers;
    request.deadline = kDeadline;
    return ask(http_, request, source);
  }

  Http http_;
};

class ContainerSource final : public LocalSource {
 public:
  ContainerSource(std::string url, std::string token, std::string token_file)
      : url_(std::move(url)), token_(std::move(token)), token_file_(std::move(token_file)) {}

  Credentials fetch() override {
    Headers headers;
    const std::string token =
        token_file_.empty() ? token_
                            : content_of(token_file_, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (!token.empty()) headers.emplace_back("Authorization", token);
    const std::string source = "the container's endpoint";
    return parse_credentials(get(url_, headers, source).body, {}, source);
  }

 private:
  std::string url_;
  std::string token_;
  std::string token_file_;
};

class MachineSource final : public LocalSource {
 public:
  explicit MachineSource(std::string base) : base_(std::move(base)) {}

  Credentials fetch() override {
    const std::string source = "the machine's metadata (IMDSv2)";
    HttpRequest request;
    request.method = "PUT";
    request.url = base_ + "/latest/api/token";
    request.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
    request.deadline = kDeadline;
    const Headers token = {
        {"X-aws-ec2-metadata-token", first_line(ask(http_, request, source).body)}};
    const std::string roles = base_ + "/latest/meta-data/iam/security-credentials/";
    const std::string role = first_line(get(roles, token, source).body);
    return parse_credentials(get(roles + encode_path(role).substr(1), token, source).body, {},
                             source);
  }

 private:
  std::string base_;
};

class AlibabaMachineSource final : public LocalSource {
 public:
  AlibabaMachineSource(std::string base, std::string role)
      : base_(std::move(base)), role_(std::move(role)) {}

  Credentials fetch() override {
    const std::string source = "the machine's metadata (RAM role)";
    const std::string roles = base_ + "/latest/meta-data/ram/security-credentials/";
    const std::string role = role_.empty() ? first_line(get(roles, {}, source).body) : role_;
    const CredentialNames names{.secret = "AccessKeySecret", .token = "SecurityToken"};
    return parse_credentials(get(roles + encode_path(role).substr(1), {}, source).body, names,
                             source);
  }

 private:
  std::string base_;
  std::string role_;
};

class WebIdentitySource final : public CredentialSource {
 public:
  explicit WebIdentitySource(WebIdentity identity)
      : identity_(std::move(identity)), http_({.ca_bundle = identity_.ca_bundle}) {}

  Credentials fetch() override {
    const std::string source = "the token service " + identity_.endpoint;
    // In the body: a URL ends up in logs.
    const std::string form = canonical_query(
        {{"Action", "AssumeRoleWithWebIdentity"},
         {"RoleArn", identity_.role},
         {"RoleSessionName", identity_.session},
         {"Version", "2011-06-15"},
         {"WebIdentityToken", content_of(identity_.token_file, "AWS_WEB_IDENTITY_TOKEN_FILE")}});
    HttpRequest request;
    request.method = "POST";
    request.url = identity_.endpoint + "/";
    request.headers = {{"Content-Type", "application/x-www-form-urlencoded"}};
    request.body = std::as_bytes(std::span(form));
    request.deadline = kTokenServiceDeadline;
    const auto root = parse_xml(ask(http_, request, source).body);
    const XmlElement* result = root ? root->find("AssumeRoleWithWebIdentityResult") : nullptr;
    const XmlElement* found = result == nullptr ? nullptr : result->find("Credentials");
    if (found != nullptr) {
      Credentials made{.key_id = found->text_of("AccessKeyId"),
                       .secret = found->text_of("SecretAccessKey"),
                       .token = found->text_of("SessionToken"),
                       .expires = parse_iso_time(found->text_of("Expiration"))};
      if (!made.key_id.empty() && !made.secret.empty() && made.expires) return made;
    }
    throw StorageError("credentials from " + source + ": the answer lacks them",
                       "check AWS_ROLE_ARN and the trust of that role");
  }

 private:
  WebIdentity identity_;
  Http http_;
};

bool is_local(const std::string& host) {
  const std::string name =
      host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.find(':'));
  // Loopback, and the addresses of the container services of Amazon.
  return name == "localhost" || name.starts_with("127.") || name == "[::1]" ||
         name == "169.254.170.2" || name == "169.254.170.23" || name == "[fd00:ec2::23]";
}

void check_full_uri(const std::string& url) {
  const std::size_t path = url.find('/', url.find("://") + 3);
  const Endpoint endpoint = parse_endpoint(url.substr(0, path));
  if (endpoint.tls || is_local(endpoint.host)) return;
  throw ConfigError("AWS_CONTAINER_CREDENTIALS_FULL_URI is http:// to another host",
                    "use https://, since credentials travel there");
}

}  // namespace

std::unique_ptr<CredentialSource> container_credentials(const Variables& variables) {
  const std::string relative = variables("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  std::string url = variables("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative.empty()) {
    url = "http://169.254.170.2" + relative;
  } else if (url.empty()) {
    return nullptr;
  } else {
    check_full_uri(url);
  }
  return std::make_unique<ContainerSource>(url, variables("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
                                           variables("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
}

std::unique_ptr<CredentialSource> machine_credentials(const Variables& variables) {
  std::string base = variables("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  return std::make_unique<MachineSource>(base);
}

std::unique_ptr<CredentialSource> alibaba_machine_credentials(const Variables& variables) {
  std::string base = variables("ALIBABA_CLOUD_METADATA_ENDPOINT");
  if (base.empty()) base = "http://100.100.100.200";
  return std::make_unique<AlibabaMachineSource>(base, variables("ALIBABA_CLOUD_ECS_METADATA"));
}

std::unique_ptr<CredentialSource> web_identity_credentials(WebIdentity identity) {
  return std::make_unique<WebIdentitySource>(std::move(identity));
}

}  // namespace lockstep::s3
