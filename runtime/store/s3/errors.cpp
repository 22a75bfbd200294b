// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/errors.h"

#include <algorithm>
#include <array>

#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

constexpr std::string_view kIncompleteAnswer = "IncompleteAnswer";

template <std::size_t N>
bool is_one_of(std::string_view code, const std::array<std::string_view, N>& codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

constexpr std::array<std::string_view, 10> kTransient = {
    "SlowDown",           "RequestTimeout",
    "IncompleteBody",     "BadDigest",
    "InternalError",      "XAmzContentSHA256Mismatch",
    "ServiceUnavailable", "ConditionalRequestConflict",
    "OperationAborted",   kIncompleteAnswer};
constexpr std::array<std::string_view, 3> kExpired = {"ExpiredToken", "InvalidToken",
                                                      "TokenRefreshRequired"};
constexpr std::array<std::string_view, 3> kOtherRegion = {"PermanentRedirect", "TemporaryRedirect",
                                                          "AuthorizationHeaderMalformed"};

bool is_full(const Failure& failure) {
  return failure.status == 507 || failure.code == "QuotaExceeded";
}

std::string hint_for(const Failure& failure) {
  if (failure.code == "NoSuchBucket") return "create the bucket, or correct its name";
  if (failure.code == "InvalidAccessKeyId" || failure.code == "SignatureDoesNotMatch") {
    return "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_PROFILE";
  }
  if (is_full(failure)) return "make room in the store, or raise its quota";
  switch (remedy_for(failure.status, failure.code)) {
    case Remedy::clock:
      return "set this machine's clock";
    case Remedy::credentials:
      return "the temporary credentials have ended and no newer ones came; renew them";
    case Remedy::region:
      return "set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL to its server";
    case Remedy::retry:
      return "see whether the store is reachable and not overloaded, then start again";
    case Remedy::none:
      break;
  }
  if (failure.status == 401 || failure.status == 403) {
    return "allow these credentials to list, read, write and delete below this prefix";
  }
  return "look up the code in the store's documentation";
}

bool needs_a_person(const Failure& failure) {
  if (failure.worked_before || is_full(failure)) return false;
  if (failure.code == "NoSuchBucket") return true;
  if (remedy_for(failure.status, failure.code) == Remedy::region) return true;
  return failure.status == 401 || failure.status == 403;
}

}  // namespace

Remedy remedy_for(int status, std::string_view code) {
  if (code == "RequestTimeTooSkewed") return Remedy::clock;
  if (is_one_of(code, kExpired)) return Remedy::credentials;
  if (is_one_of(code, kOtherRegion) || status == 301 || status == 307) return Remedy::region;
  if (is_one_of(code, kTransient)) return Remedy::retry;
  constexpr std::array<int, 7> statuses = {0, 408, 429, 500, 502, 503, 504};
  const bool later = std::find(statuses.begin(), statuses.end(), status) != statuses.end();
  return later ? Remedy::retry : Remedy::none;
}

void read_error_body(std::string_view body, Failure& failure) {
  const auto root = parse_xml(body);
  if (!root || root->name != "Error") return;
  const auto take = [&](std::string_view name, std::string& into) {
    if (const XmlElement* found = root->find(name)) into = found->text;
  };
  take("Code", failure.code);
  take("Message", failure.message);
  take("RequestId", failure.request_id);
}

bool is_complete_result(std::string_view body, Failure& failure) {
  const auto root = parse_xml(body);
  if (root && root->name == "CompleteMultipartUploadResult") return true;
  failure.code = kIncompleteAnswer;
  failure.message = "the answer is cut off or says nothing";
  read_error_body(body, failure);
  return false;
}

StorageError to_error(const Failure& failure) {
  std::string what = "store " + failure.store + ": " + failure.operation;
  if (!failure.key.empty()) what += " of " + failure.key;
  what += " failed: ";
  what += failure.status == 0 ? "no answer" : "HTTP " + std::to_string(failure.status);
  if (!failure.code.empty()) what += " " + failure.code;
  if (!failure.message.empty()) what += ": " + failure.message;
  if (!failure.request_id.empty()) what += " (request " + failure.request_id + ")";
  return StorageError(what, hint_for(failure),
                      needs_a_person(failure) ? Outcome::config : Outcome::failed_elsewhere);
}

}  // namespace lockstep::s3
