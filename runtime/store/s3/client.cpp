// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/client.h"

#include <thread>
#include <utility>

#include "lockstep/core/hash.h"
#include "runtime/store/s3/header_values.h"
#include "runtime/store/s3/times.h"
#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kMostAtOnce = 64;
// A large body may take this much longer than a small one.
constexpr std::uint64_t kSlowestBytesPerSecond = std::uint64_t{256} << 10U;

bool is_success(const HttpAnswer& answer) {
  return answer.whole() && answer.status >= 200 && answer.status < 300;
}

/// The region that an answer names; empty if it names none.
std::string region_in(const HttpAnswer& answer) {
  std::string region = answer.header("x-amz-bucket-region");
  if (!region.empty()) return region;
  const auto root = parse_xml(answer.body);
  return root ? root->text_of("Region") : std::string();
}

milliseconds asked_pause(const HttpAnswer& answer) {
  return parse_retry_after(answer.header("retry-after"));
}

bool is_read(const Call& call) { return call.method == "GET" || call.method == "HEAD"; }

bool asks_to_slow_down(const Failure& failure) {
  return failure.status == 503 || failure.status == 429 || failure.code == "SlowDown";
}

std::string sha256_of(const Body& body) {
  Sha256 hash;
  for (const auto& piece : body.pieces()) hash.update(piece);
  return to_hex(hash.finish());
}

/// Whether the request was certainly not carried out.
bool was_refused(const Failure& failure) {
  return failure.status == 429 ||
         (failure.status >= 400 && failure.status < 500 && failure.status != 408) ||
         failure.code == "SlowDown";
}

}  // namespace

Client::Client(std::string uri, std::string bucket, Settings settings,
               std::unique_ptr<CredentialSource> source)
    : uri_(std::move(uri)),
      bucket_(std::move(bucket)),
      settings_(std::move(settings)),
      http_({.ca_bundle = settings_.ca_bundle}),
      credentials_(std::move(source)),
      throttle_(kMostAtOnce),
      region_(settings_.region),
      endpoint_(settings_.endpoint) {}

double Client::random() {
  const std::lock_guard lock(mutex_);
  return std::uniform_real_distribution<double>()(random_);
}

HttpAnswer Client::send_once(const Call& call, const Credentials& credentials,
                             milliseconds deadline) {
  SigningScope scope{.time = {}, .region = {}, .dialect = settings_.dialect};
  Endpoint endpoint;
  {
    const std::lock_guard lock(mutex_);
    scope.region = region_;
    scope.time = signing_time(std::chrono::system_clock::now() + clock_ahead_);
    endpoint = endpoint_;
  }
  const Address address = address_of(endpoint, bucket_, settings_.addressing);
  const std::string prefix(settings_.dialect.prefix);
  SigningRequest request{.method = call.method,
                         .path = address.path,
                         .query = canonical_query(call.query),
                         .headers = call.headers,
                         .payload_hash = call.payload_hash};
  if (request.payload_hash.empty()) request.payload_hash = sha256_of(call.body);
  if (!call.key.empty() || request.path.empty()) request.path += encode_path(call.key);
  request.headers.emplace_back("Host", address.host);
  request.headers.emplace_back(prefix + "date", scope.time);
  request.headers.emplace_back(prefix + "content-sha256", request.payload_hash);
  if (!credentials.token.empty()) {
    request.headers.emplace_back(prefix + "security-token", credentials.token);
  }
  HttpRequest http{
      .method = call.method,
      .url = (endpoint.tls ? "https://" : "http://") + address.host + request.path,
      .headers = request.headers,
      .body = call.body,
      .into = call.into,
      .connection = call.repeat == Repeat::always ? Connection::kept : Connection::fresh,
      .deadline = deadline,
      .patience = call.patience};
  if (!request.query.empty()) http.url += "?" + request.query;
  http.headers.emplace_back("Authorization",
                            authorization(request, scope, credentials.key_id, credentials.secret));
  return http_.send(http);
}

Failure Client::failure_of(const Call& call, const HttpAnswer& answer) {
  Failure failure{.store = uri_,
                  .operation = call.operation,
                  .key = call.key,
                  .status = answer.whole() ? answer.status : 0,
                  .code = {},
                  .message = answer.fault,
                  .request_id = answer.header("x-amz-request-id")};
  {
    const std::lock_guard lock(mutex_);
    failure.worked_before = is_read(call) ? has_read_ : has_written_;
  }
  if (answer.whole() && !is_success(answer)) read_error_body(answer.body, failure);
  return failure;
}

void Client::learn_cause(const Call& call, const Credentials& credentials, Failure& failure) {
  // The answer to a HEAD has no body, so what it lacks is asked for once more.
  Call get{.operation = call.operation, .method = "GET", .key = call.key};
  get.headers = {{"Range", "bytes=0-0"}};
  const HttpAnswer answer = send_once(get, credentials, seconds(15));
  if (answer.whole() && answer.status >= 400) read_error_body(answer.body, failure);
}

bool Client::learn_region(const HttpAnswer& answer) {
  const std::string region = region_in(answer);
  const std::lock_guard lock(mutex_);
  if (region.empty() || region == region_) return false;
  region_ = region;
  if (!settings_.endpoint_is_given) {
    endpoint_ = usual_endpoint(settings_.dialect.name, region);
  }
  return true;
}

bool Client::learn_clock(const HttpAnswer& answer) {
  const auto date = parse_http_date(answer.header("date"));
  if (!date) return false;
  const std::lock_guard lock(mutex_);
  clock_ahead_ = std::chrono::duration_cast<seconds>(*date - std::chrono::system_clock::now());
  const auto off = clock_ahead_.count();
  notes_.push_back("the clock of this machine is " + std::to_string(off < 0 ? -off : off) + " s " +
                   (off < 0 ? "ahead of" : "behind") + " that of store " + uri_ +
                   ", which is used for it");
  return true;
}

void Client::remember_success(const Call& call) {
  const std::lock_guard lock(mutex_);
  (is_read(call) ? has_read_ : has_written_) = true;
}

std::vector<std::string> Client::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

Reply Client::send(const Call& call) {
  RetryLimits limits{.attempts = settings_.attempts};
  const std::uint64_t bytes = std::max<std::uint64_t>(call.body.size(), call.into.size());
  limits.deadline += seconds(bytes / kSlowestBytesPerSecond);
  Retries retries(limits, Retries::Clock::now(), [this] { return random(); });
  bool clock = false;
  bool region = false;
  bool renewed = false;
  while (true) {
    const Credentials credentials = credentials_.get();
    Reply reply;
    {
      Throttle::Turn turn(throttle_, retries.left(Retries::Clock::now()));
      reply.answer = send_once(call, credentials, retries.left(Retries::Clock::now()));
      reply.failure = failure_of(call, reply.answer);
      if (asks_to_slow_down(reply.failure)) {
        turn.was_throttled();
      } else if (is_success(reply.answer)) {
        turn.went_well();
      }
    }
    if (is_success(reply.answer)) {
      reply.ok = !call.check || call.check(reply.answer, reply.failure);
      if (reply.ok) {
        remember_success(call);
        return reply;
      }
    } else if (call.method == "HEAD" && reply.answer.whole() &&
               (reply.answer.status == 403 || reply.answer.status == 400)) {
      learn_cause(call, credentials, reply.failure);
    }
    reply.refused = was_refused(reply.failure);
    if (call.returns_cut && reply.answer.is_cut()) return reply;
    const Remedy remedy = remedy_for(reply.failure.status, reply.failure.code);
    if (remedy == Remedy::clock && !std::exchange(clock, true) && learn_clock(reply.answer)) {
      continue;
    }
    if (remedy == Remedy::region && !std::exchange(region, true) && learn_region(reply.answer)) {
      continue;
    }
    if (remedy == Remedy::credentials && !std::exchange(renewed, true) &&
        credentials_.renew(credentials)) {
      continue;
    }
    if (remedy == Remedy::region) {
      const std::string named = region_in(reply.answer);
      if (!named.empty()) reply.failure.message += " (the store names region " + named + ")";
    }
    if (remedy != Remedy::retry) return reply;
    if (call.repeat == Repeat::if_refused && !reply.refused) return reply;
    const auto pause = retries.next(Retries::Clock::now(), asked_pause(reply.answer));
    if (!pause) return reply;
    std::this_thread::sleep_for(*pause);
  }
}

}  // namespace lockstep::s3
