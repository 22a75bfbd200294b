// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/uri.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

bool is_unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

}  // namespace

std::string percent_encode(std::string_view text, Slash slash) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && slash == Slash::kept)) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += digits[byte >> 4U];
    encoded += digits[byte & 15U];
  }
  return encoded;
}

std::string encode_path(std::string_view key) { return "/" + percent_encode(key, Slash::kept); }

std::string canonical_query(const Query& query) {
  Query encoded;
  encoded.reserve(query.size());
  for (const auto& [name, value] : query) {
    encoded.emplace_back(percent_encode(name, Slash::encoded),
                         percent_encode(value, Slash::encoded));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) {
    if (!text.empty()) text += '&';
    text += name;
    text += '=';
    text += value;
  }
  return text;
}

Endpoint parse_endpoint(std::string_view text) {
  const auto refuse = [&] {
    throw ConfigError("endpoint \"" + std::string(text) + "\" is not a URL of a server",
                      "give http://HOST[:PORT] or https://HOST[:PORT], without path and password");
  };
  Endpoint endpoint;
  std::string_view rest = text;
  if (rest.starts_with("http://")) {
    endpoint.tls = false;
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else {
    refuse();
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::string_view implied = endpoint.tls ? ":443" : ":80";
  if (rest.ends_with(implied)) rest.remove_suffix(implied.size());
  if (rest.empty() || rest.find_first_of("/@?# ") != std::string_view::npos) refuse();
  endpoint.host = rest;
  return endpoint;
}

}  // namespace lockstep::s3
