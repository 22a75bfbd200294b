// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/s3/errors.h"
#include "runtime/store/s3/retry.h"

namespace lockstep::s3 {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(S3Errors, AreRetriedWhereLaterMayHelp) {
  for (const int status : {0, 408, 429, 500, 502, 503, 504}) {
    EXPECT_EQ(remedy_for(status, ""), Remedy::retry) << status;
  }
  for (const char* code :
       {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "SlowDown"}) {
    EXPECT_EQ(remedy_for(400, code), Remedy::retry) << code;
  }
  for (const int status : {400, 401, 403, 404, 405, 412, 416}) {
    EXPECT_EQ(remedy_for(status, ""), Remedy::none) << status;
  }
  EXPECT_EQ(remedy_for(403, "AccessDenied"), Remedy::none);
  EXPECT_EQ(remedy_for(404, "NoSuchBucket"), Remedy::none);
  EXPECT_EQ(remedy_for(400, "EntityTooSmall"), Remedy::none);
}

TEST(S3Errors, AreCuredOnceWhereTheRequestWasWrong) {
  EXPECT_EQ(remedy_for(403, "RequestTimeTooSkewed"), Remedy::clock);
  EXPECT_EQ(remedy_for(400, "ExpiredToken"), Remedy::credentials);
  EXPECT_EQ(remedy_for(301, ""), Remedy::region);
  EXPECT_EQ(remedy_for(400, "AuthorizationHeaderMalformed"), Remedy::region);
}

TEST(S3Errors, ATwoHundredIsSuccessOnlyWithAWholeResult) {
  Failure failure;
  EXPECT_TRUE(is_complete_result(
      "\n <CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>", failure));
  EXPECT_FALSE(is_complete_result("  <Error><Code>InternalError</Code></Error>", failure));
  EXPECT_EQ(remedy_for(200, failure.code), Remedy::retry);
  EXPECT_FALSE(is_complete_result("<Error><Code>AccessDenied</Code></Error>", failure));
  EXPECT_EQ(remedy_for(200, failure.code), Remedy::none);
  for (const char* body : {"", "   ", "<CompleteMultipartUploadResult><ETag>"}) {
    EXPECT_FALSE(is_complete_result(body, failure));
    EXPECT_EQ(remedy_for(200, failure.code), Remedy::retry) << body;
  }
}

TEST(S3Errors, SayEverythingThatTheStoreSaid) {
  Failure failure;
  failure.store = "s3://b/run";
  failure.operation = "PutObject";
  failure.key = "log/1";
  failure.status = 403;
  read_error_body(
      "<Error><Code>AccessDenied</Code><Message>no</Message><RequestId>r7</RequestId></Error>",
      failure);
  const StorageError error = to_error(failure);
  EXPECT_STREQ(
      error.what(),
      "store s3://b/run: PutObject of log/1 failed: HTTP 403 AccessDenied: no (request r7)");
  EXPECT_EQ(error.outcome(), Outcome::config);
  EXPECT_THAT(error.hint(), HasSubstr("allow these credentials"));
  failure.status = 503;
  failure.code = "SlowDown";
  EXPECT_EQ(to_error(failure).outcome(), Outcome::failed_elsewhere);
  failure.status = 404;
  failure.code = "NoSuchBucket";
  EXPECT_EQ(to_error(failure).outcome(), Outcome::config);
}

TEST(S3Retries, PauseUpToABoundThatDoublesAndEndWithTheAttempts) {
  const Retries::Clock::time_point start{};
  Retries retries({.first = milliseconds(100),
                   .longest = milliseconds(300),
                   .deadline = milliseconds(10'000),
                   .attempts = 5},
                  start, [] { return 0.5; });
  EXPECT_EQ(retries.next(start), milliseconds(50));
  EXPECT_EQ(retries.next(start), milliseconds(100));
  EXPECT_EQ(retries.next(start), milliseconds(150));
  EXPECT_EQ(retries.next(start, milliseconds(2000)), milliseconds(2000)) << "Retry-After";
  EXPECT_EQ(retries.next(start), std::nullopt);
}

TEST(S3Retries, EndAtTheDeadline) {
  const Retries::Clock::time_point start{};
  Retries retries({.deadline = milliseconds(1000)}, start, [] { return 0.9; });
  EXPECT_EQ(retries.next(start + milliseconds(950)), std::nullopt);
  EXPECT_EQ(retries.left(start + milliseconds(400)), milliseconds(600));
  EXPECT_EQ(retries.left(start + milliseconds(2000)), milliseconds(0));
}

}  // namespace
}  // namespace lockstep::s3
