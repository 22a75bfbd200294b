// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/store/s3/uri.h"

namespace lockstep::s3 {

/// The place that a store URI names, after its scheme.
struct Location {
  std::string bucket;
  std::string prefix;  // without "/" at its ends; may be empty
};

/// Of "//bucket/prefix" or "bucket/prefix". Throws ConfigError where there is no bucket, or a part
/// of the prefix is empty, "." or "..".
Location parse_location(std::string_view rest);

enum class Addressing : std::uint8_t { path, virtual_host };

/// Where the objects of a bucket are: host and the start of the path, both as signed and sent.
struct Address {
  std::string host;
  std::string path;  // "" or "/bucket"; encode_path(key) follows
};

/// By virtual host, an endpoint whose host already begins with the bucket is taken as it is; by
/// path it is not, for a server may be called like a bucket. Throws ConfigError where the bucket's
/// name cannot be part of a host.
Address address_of(const Endpoint& endpoint, const std::string& bucket, Addressing addressing);

}  // namespace lockstep::s3
