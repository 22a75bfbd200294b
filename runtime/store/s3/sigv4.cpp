// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <map>
#include <span>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

Sha256Digest hmac(std::span<const std::uint8_t> key, std::string_view text) {
  Sha256Digest digest = {};
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(),
           digest.data(), &size) == nullptr) {
    throw UsageError("HMAC-SHA256 failed", "check the OpenSSL installation");
  }
  return digest;
}

/// Without blanks at the ends; a run of blanks inside is one.
std::string trimmed(std::string_view value) {
  std::string text;
  bool blank = false;
  for (const char c : value) {
    if (c == ' ' || c == '\t') {
      blank = true;
      continue;
    }
    if (blank && !text.empty()) text += ' ';
    blank = false;
    text += c;
  }
  return text;
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// By name in lower case; values of one name are joined by commas, in their order.
std::map<std::string, std::string> canonical_headers(const Headers& headers) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : headers) {
    const auto [at, added] = sorted.emplace(lower(name), trimmed(value));
    if (!added) at->second += "," + trimmed(value);
  }
  return sorted;
}

std::string signed_headers(const Headers& headers) {
  std::string names;
  for (const auto& [name, value] : canonical_headers(headers)) {
    if (!names.empty()) names += ';';
    names += name;
  }
  return names;
}

std::string scope_text(const SigningScope& scope) {
  std::string text = scope.time.substr(0, 8) + "/" + scope.region + "/";
  return text.append(scope.dialect.service).append("/").append(scope.dialect.terminator);
}

}  // namespace

Sha256Digest signing_key(std::string_view secret, const SigningScope& scope) {
  const std::string first = std::string(scope.dialect.key_prefix).append(secret);
  const std::span start(reinterpret_cast<const std::uint8_t*>(first.data()), first.size());
  Sha256Digest key = hmac(start, scope.time.substr(0, 8));
  for (const std::string_view part :
       {std::string_view(scope.region), scope.dialect.service, scope.dialect.terminator}) {
    key = hmac(key, part);
  }
  return key;
}

std::string canonical_request(const SigningRequest& request) {
  std::string text = request.method + "\n" + request.path + "\n" + request.query + "\n";
  for (const auto& [name, value] : canonical_headers(request.headers)) {
    text += name + ":" + value + "\n";
  }
  return text + "\n" + signed_headers(request.headers) + "\n" + request.payload_hash;
}

std::string signature(const SigningRequest& request, const SigningScope& scope,
                      std::string_view secret) {
  const std::string text = std::string(scope.dialect.algorithm) + "\n" + scope.time + "\n" +
                           scope_text(scope) + "\n" + to_hex(sha256(canonical_request(request)));
  return to_hex(hmac(signing_key(secret, scope), text));
}

std::string authorization(const SigningRequest& request, const SigningScope& scope,
                          std::string_view key_id, std::string_view secret) {
  return std::string(scope.dialect.algorithm) + " Credential=" + std::string(key_id) + "/" +
         scope_text(scope) + ",SignedHeaders=" + signed_headers(request.headers) +
         ",Signature=" + signature(request, scope, secret);
}

}  // namespace lockstep::s3
