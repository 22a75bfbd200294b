// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "runtime/store/s3/address.h"

namespace lockstep::s3 {
namespace {

TEST(S3Location, IsABucketAndAPrefix) {
  for (const char* text : {"//b/runs/1", "b/runs/1", "//b/runs/1/"}) {
    const Location location = parse_location(text);
    EXPECT_EQ(location.bucket, "b") << text;
    EXPECT_EQ(location.prefix, "runs/1") << text;
  }
  EXPECT_EQ(parse_location("//b").prefix, "");
  for (const char* text : {"", "//", "///p", "/b", "b//p", "b/../c", "b/./c", "b/.."}) {
    EXPECT_THROW(parse_location(text), ConfigError) << text;
  }
}

TEST(S3Address, PutsTheBucketIntoTheHostOrThePathOnce) {
  const Endpoint endpoint = parse_endpoint("https://oss.example");
  const Address by_host = address_of(endpoint, "b", Addressing::virtual_host);
  EXPECT_EQ(by_host.host, "b.oss.example");
  EXPECT_EQ(by_host.path, "");
  const Address by_path = address_of(endpoint, "b", Addressing::path);
  EXPECT_EQ(by_path.host, "oss.example");
  EXPECT_EQ(by_path.path, "/b");
  const Endpoint with_bucket = parse_endpoint("https://b.oss.example/");
  const Address same = address_of(with_bucket, "b", Addressing::virtual_host);
  EXPECT_EQ(same.host, "b.oss.example");
  EXPECT_EQ(same.path, "");
}

TEST(S3Address, ByPathKeepsABucketThatIsCalledLikeTheServer) {
  const Address address =
      address_of(parse_endpoint("http://127.0.0.1:9000"), "127", Addressing::path);
  EXPECT_EQ(address.host, "127.0.0.1:9000");
  EXPECT_EQ(address.path, "/127");
}

TEST(S3Address, RefusesABucketThatCannotBePartOfAHost) {
  const Endpoint endpoint = parse_endpoint("https://oss.example");
  for (const char* bucket : {"a_b", "a.b", "A", "-a"}) {
    EXPECT_THROW(address_of(endpoint, bucket, Addressing::virtual_host), ConfigError) << bucket;
    EXPECT_EQ(address_of(endpoint, bucket, Addressing::path).host, "oss.example");
  }
}

}  // namespace
}  // namespace lockstep::s3
