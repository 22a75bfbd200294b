// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/settings.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/s3/base64.h"

namespace lockstep::s3 {
namespace {

constexpr int kMostAttempts = 100;

class Reader {
 public:
  Reader(const Variables& variables, const Profile& profile)
      : variables_(variables), profile_(profile) {}

  /// The first variable that is set, else the profile's value; empty without either.
  std::string text(std::initializer_list<const char*> names, const std::string& in_profile) const {
    for (const char* name : names) {
      if (std::string value = variables_(name); !value.empty()) return value;
    }
    const auto at = profile_.find(in_profile);
    return at == profile_.end() ? std::string() : at->second;
  }

 private:
  const Variables& variables_;
  const Profile& profile_;
};

int attempts_of(const std::string& text) {
  if (text.empty()) return Settings{}.attempts;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 ||
      value > kMostAttempts) {
    throw ConfigError("AWS_MAX_ATTEMPTS is \"" + text + "\"", "give a number from 1 to 100");
  }
  return value;
}

bool bool_of(const std::string& name, const std::string& text) {
  if (text.empty() || text == "false") return false;
  if (text == "true") return true;
  throw ConfigError(name + " is \"" + text + "\"", "give true or false");
}

/// "16MB" or a number of bytes, as Amazon's tools read it.
std::uint64_t part_bytes_of(const std::string& text) {
  constexpr std::uint64_t least = 5 * kMebibyte;
  constexpr std::uint64_t most = 1024 * kMebibyte;
  if (text.empty()) return PartLimits{}.least_bytes;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, text.data() + text.size());
  const unsigned shift = unit.empty() ? 0 : unit == "KB" ? 10 : unit == "MB" ? 20 : 64;
  if (error != std::errc{} || shift == 64 || value > most || value << shift < least ||
      value << shift > most) {
    throw ConfigError("multipart_chunksize is \"" + text + "\"",
                      "give bytes or e.g. 16MB, from 5MB to 1024MB");
  }
  return value << shift;
}

bool is_google(const Endpoint& endpoint) {
  return endpoint.host == "storage.googleapis.com" ||
         endpoint.host.ends_with(".storage.googleapis.com");
}

Dialect dialect_of(std::string_view scheme, const Endpoint& endpoint) {
  if (scheme == "oss") return kOss;
  return is_google(endpoint) ? kGcs : kAws;
}

Addressing addressing_of(const std::string& asked, const Settings& settings,
                         const std::string& bucket) {
  const bool is_oss = settings.dialect.name == kOss.name;
  if (asked == "path") {
    if (!is_oss) return Addressing::path;
    throw ConfigError("AWS_S3_ADDRESSING_STYLE is path, which OSS refuses", "unset it");
  }
  if (asked == "virtual" || is_oss) return Addressing::virtual_host;
  if (!asked.empty() && asked != "auto") {
    throw ConfigError("AWS_S3_ADDRESSING_STYLE is \"" + asked + "\"", "give auto, path or virtual");
  }
  // Servers of one's own rarely have a name for each bucket; Amazon asks for it, but a certificate
  // for *.s3… does not hold for a bucket with a dot.
  const bool dotted = bucket.find('.') != std::string::npos;
  return settings.endpoint_is_given || dotted ? Addressing::path : Addressing::virtual_host;
}

std::string key_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string key((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (key.size() == 32) return key;
  throw ConfigError("AWS_S3_SSE_CUSTOMER_KEY_FILE: " + path + " does not hold a key",
                    "it must be a readable file of 32 bytes, e.g. of `openssl rand 32`");
}

Encryption encryption_of(const Reader& reader, const Settings& settings) {
  const std::string kind = reader.text({"AWS_S3_SSE"}, "");
  const std::string kms_key = reader.text({"AWS_S3_SSE_KMS_KEY_ID"}, "");
  const std::string key_file = reader.text({"AWS_S3_SSE_CUSTOMER_KEY_FILE"}, "");
  Encryption encryption;
  if (kind.empty() && kms_key.empty() && key_file.empty()) return encryption;
  const std::string prefix = std::string(settings.dialect.prefix) + "server-side-encryption";
  if (settings.dialect.name == kGcs.name) {
    throw ConfigError("AWS_S3_SSE* are set, which Google's stores do not know",
                      "unset them; set the key of the bucket instead");
  }
  if (!settings.endpoint.tls) {
    throw ConfigError("encryption by the store is asked for, but the endpoint is http://",
                      "stores refuse it there: use https://, or unset AWS_S3_SSE*");
  }
  if (!key_file.empty()) {
    if (!kind.empty() || !kms_key.empty()) {
      throw ConfigError("AWS_S3_SSE and AWS_S3_SSE_CUSTOMER_KEY_FILE are both set",
                        "unset one of them");
    }
    const std::string text = key_in(key_file);
    const auto key = std::as_bytes(std::span(text));
    const Md5Digest digest = md5(std::vector<Pieces>{{key}}).front();
    encryption.on_all = {{prefix + "-customer-algorithm", "AES256"},
                         {prefix + "-customer-key", base64(key)},
                         {prefix + "-customer-key-md5", base64(std::as_bytes(std::span(digest)))}};
    return encryption;
  }
  if ((kind != "AES256" && kind != "aws:kms") || (kind == "AES256" && !kms_key.empty())) {
    throw ConfigError("AWS_S3_SSE is \"" + kind + "\"",
                      "give AES256, or aws:kms with or without AWS_S3_SSE_KMS_KEY_ID");
  }
  encryption.on_create = {{prefix, kind}};
  if (!kms_key.empty()) encryption.on_create.emplace_back(prefix + "-aws-kms-key-id", kms_key);
  return encryption;
}

}  // namespace

Endpoint usual_endpoint(std::string_view scheme, const std::string& region) {
  if (scheme == "oss") {
    const std::string zone = region.starts_with("oss-") ? region : "oss-" + region;
    return {.tls = true, .host = "s3." + zone + ".aliyuncs.com"};
  }
  const std::string_view domain =
      region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
  return {.tls = true, .host = "s3." + region + std::string(domain)};
}

Settings read_settings(std::string_view scheme, const std::string& bucket,
                       const Variables& variables, const Profile& profile) {
  const Reader reader(variables, profile);
  Settings settings;
  const bool is_oss = scheme == "oss";
  std::string endpoint = is_oss ? reader.text({"OSS_ENDPOINT"}, "oss.endpoint") : std::string();
  if (endpoint.empty()) {
    endpoint = reader.text({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
  }
  settings.region = is_oss ? reader.text({"OSS_REGION"}, "oss.region") : std::string();
  if (settings.region.empty()) {
    settings.region = reader.text({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  }
  settings.endpoint_is_given = !endpoint.empty();
  if (settings.endpoint_is_given) settings.endpoint = parse_endpoint(endpoint);
  settings.dialect = dialect_of(scheme, settings.endpoint);
  if (settings.region.empty()) {
    if (is_oss && !settings.endpoint_is_given) {
      throw ConfigError("no region is set for OSS", "set OSS_REGION, e.g. cn-hangzhou");
    }
    // Servers of one's own mostly take any; Amazon's answer names the right one.
    settings.region = is_google(settings.endpoint) ? "auto" : "us-east-1";
  }
  if (!settings.endpoint_is_given) {
    settings.endpoint = usual_endpoint(scheme, settings.region);
  }
  settings.addressing = addressing_of(
      reader.text({"AWS_S3_ADDRESSING_STYLE"}, "s3.addressing_style"), settings, bucket);
  address_of(settings.endpoint, bucket, settings.addressing);  // refuses what cannot be
  settings.encryption = encryption_of(reader, settings);
  settings.ca_bundle = reader.text({"AWS_CA_BUNDLE"}, "ca_bundle");
  settings.parts.least_bytes = part_bytes_of(reader.text({}, "s3.multipart_chunksize"));
  settings.signs_parts =
      bool_of("payload_signing_enabled", reader.text({}, "s3.payload_signing_enabled"));
  settings.attempts = attempts_of(reader.text({"AWS_MAX_ATTEMPTS"}, "max_attempts"));
  return settings;
}

}  // namespace lockstep::s3
