// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/store/s3/body.h"
#include "runtime/store/s3/credentials.h"
#include "runtime/store/s3/errors.h"
#include "runtime/store/s3/http.h"
#include "runtime/store/s3/retry.h"
#include "runtime/store/s3/settings.h"
#include "runtime/store/s3/throttle.h"
#include "runtime/store/s3/uri.h"

namespace lockstep::s3 {

enum class Repeat : std::uint8_t {
  always,     // doing it twice is as good as once
  if_refused  // only where it was certainly not carried out: the caller finds out the rest
};

/// One operation on the bucket or on an object in it.
struct Call {
  std::string operation;  // PutObject
  std::string method;
  std::string key;  // in the bucket; empty: the bucket itself
  Query query = {};
  Headers headers = {};
  Body body = {};
  std::string payload_hash = {};  // what the signature says of the body; empty: its SHA-256
  std::span<std::byte> into = {};
  Repeat repeat = Repeat::always;
  std::chrono::seconds patience{15};
  bool returns_cut = false;  // a body that was cut off is a result: the caller asks for the rest
  /// Whether a 2xx says what it must; else it fills code and message in, and `remedy_for` decides.
  std::function<bool(const HttpAnswer&, Failure&)> check = {};
};

struct Reply {
  HttpAnswer answer;
  Failure failure;  // where not ok
  bool ok = false;
  bool refused = false;  // where not ok: certainly not carried out
};

/// Requests to one bucket: signed right before they are sent, again and again where that helps.
/// What it learns (region, clock) holds for later requests. Any thread.
class Client {
 public:
  /// `uri`: for messages.
  Client(std::string uri, std::string bucket, Settings settings,
         std::unique_ptr<CredentialSource> source);

  /// Other answers than 2xx are results too. Throws what the credentials' source throws.
  Reply send(const Call& call);
  /// What a person should know about this machine or the store, since the last call.
  std::vector<std::string> take_notes();
  const Settings& settings() const noexcept { return settings_; }
  const std::string& uri() const noexcept { return uri_; }

 private:
  HttpAnswer send_once(const Call& call, const Credentials& credentials,
                       std::chrono::milliseconds deadline);
  Failure failure_of(const Call& call, const HttpAnswer& answer);
  void learn_cause(const Call& call, const Credentials& credentials, Failure& failure);
  bool learn_region(const HttpAnswer& answer);
  bool learn_clock(const HttpAnswer& answer);
  void remember_success(const Call& call);
  double random();

  std::string uri_;
  std::string bucket_;
  Settings settings_;
  Http http_;
  CredentialCache credentials_;
  Throttle throttle_;
  std::mutex mutex_;  // of what follows
  std::string region_;
  Endpoint endpoint_;
  std::chrono::seconds clock_ahead_{0};  // the server's, of ours
  std::vector<std::string> notes_;
  bool has_read_ = false;
  bool has_written_ = false;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace lockstep::s3
