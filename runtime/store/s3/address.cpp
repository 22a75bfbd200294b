// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/address.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "runtime/store/object_key.h"

namespace lockstep::s3 {
namespace {

bool is_host_label(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return name.size() <= 63 && std::all_of(name.begin(), name.end(), fits) &&
         !name.starts_with('-') && !name.ends_with('-');
}

}  // namespace

Location parse_location(std::string_view rest) {
  const std::string_view given = rest;
  if (rest.starts_with("//")) rest.remove_prefix(2);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t slash = rest.find('/');
  Location location;
  location.bucket = rest.substr(0, slash);
  if (slash != std::string_view::npos) location.prefix = rest.substr(slash + 1);
  if (location.bucket.empty() || (slash != std::string_view::npos && !is_key(location.prefix))) {
    throw ConfigError("store \"" + std::string(given) + "\" does not name a bucket and a prefix",
                      "give s3://BUCKET/PREFIX, the parts of PREFIX separated by one '/'");
  }
  return location;
}

Address address_of(const Endpoint& endpoint, const std::string& bucket, Addressing addressing) {
  if (addressing == Addressing::path) {
    return {.host = endpoint.host, .path = encode_path(bucket)};
  }
  if (endpoint.host.starts_with(bucket + ".")) return {.host = endpoint.host, .path = ""};
  if (!is_host_label(bucket)) {
    throw ConfigError("bucket \"" + bucket + "\" cannot be part of a host name",
                      "address it by path, or take a bucket of a-z, 0-9 and '-' alone");
  }
  return {.host = bucket + "." + endpoint.host, .path = ""};
}

}  // namespace lockstep::s3
