// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::s3 {

enum class Slash : bool { encoded, kept };

/// Every byte but A-Z a-z 0-9 - _ . ~ (and "/", if kept) as %XX in upper case. Once: a "%" of
/// `text` is a byte like any other.
std::string percent_encode(std::string_view text, Slash slash);

/// The path of an object as it is signed and sent: nothing is cleaned up, "//" and ".." stay.
std::string encode_path(std::string_view key);

using Query = std::vector<std::pair<std::string, std::string>>;

/// Names and values encoded, then sorted, as they are signed and sent: "a=&b=1%2F2".
std::string canonical_query(const Query& query);

/// Where a store is reached: what `AWS_ENDPOINT_URL` says.
struct Endpoint {
  bool tls = true;
  std::string host;  // as the Host header has it: the port only where the scheme does not imply it
};

/// Throws ConfigError unless `text` is http(s)://HOST[:PORT][/].
Endpoint parse_endpoint(std::string_view text);

}  // namespace lockstep::s3
