// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/store/s3/body.h"
#include "runtime/store/s3/sigv4.h"

namespace lockstep::s3 {

enum class Connection : std::uint8_t {
  kept,   // one that an earlier request has left open, if there is one
  fresh,  // a new one: on one that turns out dead libcurl would send the request a second time
};

struct HttpRequest {
  std::string method;  // GET, HEAD, PUT, POST or DELETE
  std::string url;
  Headers headers;
  Body body;
  std::span<std::byte> into;  // where the body of a 206 goes
  Connection connection = Connection::kept;
  std::chrono::milliseconds deadline{30'000};
  std::chrono::seconds patience{15};  // for less than 4 KiB a second in both directions
};

/// An answer, or as much of one as has come.
struct HttpAnswer {
  int status = 0;    // 0: none has come
  Headers headers;   // names in lower case
  std::string body;  // of all but a 206 with `into`
  std::size_t into_bytes = 0;
  std::string fault;  // why it is not whole; empty if it is

  bool whole() const { return status != 0 && fault.empty(); }
  /// Whether it is the beginning of an object's bytes.
  bool is_cut() const {
    return (status == 200 || status == 206) && !fault.empty() && (into_bytes > 0 || !body.empty());
  }
  /// The value of that name (lower case); empty if there is none.
  std::string header(std::string_view name) const;
};

struct HttpOptions {
  std::string ca_bundle;    // a file of certificates instead of the system's; empty: the system's
  bool use_proxies = true;  // those of the variables http_proxy, https_proxy, no_proxy
};

/// HTTP/1.1 over libcurl: certificates are checked, redirects are not followed, nothing is tried
/// twice. Any thread; connections are kept for the next request.
class Http {
 public:
  explicit Http(HttpOptions options);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  HttpAnswer send(const HttpRequest& request);

 private:
  struct Handle;

  std::unique_ptr<Handle> take();
  void give_back(std::unique_ptr<Handle> handle);

  HttpOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;
};

}  // namespace lockstep::s3
