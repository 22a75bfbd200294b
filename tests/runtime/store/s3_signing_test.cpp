// SPDX-License-Identifier: Apache-2.0
// Signatures against those that AWS publishes: the examples of the S3 documentation (with its
// example pair of keys, which opens nothing) and the Signature Version 4 test suite.
#include <gtest/gtest.h>

#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/s3/part_plan.h"
#include "runtime/store/s3/sigv4.h"
#include "runtime/store/s3/uri.h"

namespace lockstep::s3 {
namespace {

constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr const char* kTime = "20130524T000000Z";
const SigningScope kScope{.time = kTime, .region = "us-east-1"};

SigningRequest request(const std::string& method, const std::string& path, const Query& query = {},
                       const std::string& body = "",
                       const std::string& host = "examplebucket.s3.amazonaws.com") {
  const std::string hash = to_hex(sha256(body));
  return {.method = method,
          .path = path,
          .query = canonical_query(query),
          .headers = {{"Host", host}, {"x-amz-content-sha256", hash}, {"x-amz-date", kTime}},
          .payload_hash = hash};
}

void expect_signed(const SigningRequest& made, const std::string& canonical_hash,
                   const std::string& expected, const SigningScope& scope = kScope) {
  EXPECT_EQ(to_hex(sha256(canonical_request(made))), canonical_hash) << canonical_request(made);
  EXPECT_EQ(signature(made, scope, kSecret), expected);
}

TEST(SigV4, SignsTheExamplesOfTheS3Documentation) {
  SigningRequest get = request("GET", "/test.txt");
  get.headers.emplace_back("Range", "bytes=0-9");
  expect_signed(get, "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  SigningRequest put = request("PUT", "/test%24file.text", {}, "Welcome to Amazon S3.");
  put.headers.emplace_back("Date", "Fri, 24 May 2013 00:00:00 GMT");
  put.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
  expect_signed(put, "9e0e90d9c76de8fa5b200d8c849cd5b8dc7a3be3951ddb7f6a76b4158342019d",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  expect_signed(request("GET", "/", {{"lifecycle", ""}}),
                "9766c798316ff2757b517bc739a67f6213b4ab36dd5da2f94eaebf79c77395ca",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  expect_signed(request("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}),
                "df57d21db20da04d7fa30298dd4488ba3a2b47ca3a489c74750e0f1e7df1b9b7",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4, SignsKeysTokensAndPortsAsTheyAreSent) {
  expect_signed(request("GET", encode_path("a b+c.txt")),
                "5eac45ddff287cc60d059b7f02a83abc4ae7506f5590f8fe5a9557e71ca2662f",
                "062b11b9c4a9b243434e9a749f9f002cea4b6638e5a7e9ca50ead1f5281cf5fd");
  expect_signed(
      request("GET", "/",
              {{"prefix", "ck/step=1/"}, {"list-type", "2"}, {"continuation-token", "1/x+y=="}}),
      "c2591eb5003a9c78986472744ae1de7654b62f8781dfe286d29d5131bcccee19",
      "b5946e2ff25610982166858f238b69fbeb03a4231828c26a0af45a86b5dfe993");
  expect_signed(request("GET", "/b/k", {}, "", parse_endpoint("http://127.0.0.1:9000/").host),
                "16ffe3c0ba9b9c9fa61258935e4fbcc6d4c39f0fb11f9349a9780d36a85b8760",
                "04733a8dd6af00d81370b4ee71c85ab5856517d50a2f77b56003dec51f9d0e58");
  expect_signed(request("GET", "/b/k", {}, "", parse_endpoint("http://127.0.0.1:80").host),
                "6a7370ce086827a4ee16f14ddfb0b752b3f1f16d3cd3ccd8da941f093f4b9bd5",
                "e4557ecaf45c5d7b29137ce8c53174fab4f1b17615120ced4d702d38a71b373f");
}

TEST(SigV4, SignsForTheRegionThatIsAsked) {
  const SigningRequest get = request("GET", "/test.txt");
  EXPECT_EQ(signature(get, kScope, kSecret),
            "df548e2ce037944d03f3e68682813b093763996d597cf890ca3d9037fd231eb4");
  EXPECT_EQ(signature(get, {.time = kTime, .region = "eu-west-1"}, kSecret),
            "825fdd4064cbd5437e642b9567d9f2362b8c853001b840d63112e9e74405681a");
  EXPECT_EQ(to_hex(signing_key(kSecret, kScope)),
            "dbb893acc010964918f1fd433add87c70e8b0db6be30c1fbeafefa5ec6ba8378");
}

// The test suite has a secret and a service of its own.
std::string suite(const std::string& method, const std::string& path, const std::string& query,
                  const Headers& more = {}) {
  SigningRequest made{.method = method,
                      .path = path,
                      .query = query,
                      .headers = {{"Host", "example.amazonaws.com"}},
                      .payload_hash = to_hex(sha256(""))};
  made.headers.insert(made.headers.end(), more.begin(), more.end());
  made.headers.emplace_back("X-Amz-Date", "20150830T123600Z");
  Dialect dialect = kAws;
  dialect.service = "service";
  return signature(made, {.time = "20150830T123600Z", .region = "us-east-1", .dialect = dialect},
                   "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
}

TEST(SigV4, AgreesWithTheTestSuite) {
  EXPECT_EQ(suite("GET", "/", ""),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(suite("POST", "/", ""),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
  EXPECT_EQ(suite("GET", "/", canonical_query({{"Param2", "value2"}, {"Param1", "value1"}})),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(suite("GET", encode_path("\xe1\x88\xb4"), ""),
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  EXPECT_EQ(suite("GET", "/", canonical_query({{"\xe1\x88\xb4", "bar"}})),
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
  EXPECT_EQ(suite("GET", "/", "", {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}}),
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

TEST(SigV4, WritesTheHeaderWithoutTheSecret) {
  const std::string value =
      authorization(request("GET", "/test.txt"), kScope, "AKIAIOSFODNN7EXAMPLE", kSecret);
  EXPECT_EQ(value,
            "AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date,"
            "Signature=df548e2ce037944d03f3e68682813b093763996d597cf890ca3d9037fd231eb4");
}

TEST(S3Path, IsEncodedOnceAndNotCleanedUp) {
  EXPECT_EQ(encode_path("a b+c.txt"), "/a%20b%2Bc.txt");
  EXPECT_EQ(encode_path("C++ notes.txt"), "/C%2B%2B%20notes.txt");
  EXPECT_EQ(encode_path("dir/\xc3\xbc/\xe6\xa8\xa1\xe5\x9e\x8b.h5"),
            "/dir/%C3%BC/%E6%A8%A1%E5%9E%8B.h5");
  EXPECT_EQ(encode_path("x=1&y~z*'().bin"), "/x%3D1%26y~z%2A%27%28%29.bin");
  EXPECT_EQ(encode_path("100%25.h5"), "/100%2525.h5");
  EXPECT_EQ(encode_path("a//b/../c"), "/a//b/../c");
}

TEST(S3Endpoint, KeepsAPortThatTheSchemeDoesNotImply) {
  EXPECT_EQ(parse_endpoint("https://h:443/").host, "h");
  EXPECT_EQ(parse_endpoint("https://h:80").host, "h:80");
  EXPECT_FALSE(parse_endpoint("http://h").tls);
  for (const char* text : {"", "h:9000", "ftp://h", "http://", "http://h/p", "http://u:p@h"}) {
    EXPECT_THROW(parse_endpoint(text), ConfigError) << text;
  }
}

TEST(S3Parts, ObeyTheLimitsOfTheStore) {
  const PartLimits all{.least_bytes = 5 * kMebibyte, .most_parts = 10000};
  const auto expect = [&](std::uint64_t size, std::uint64_t mebibytes, std::uint64_t parts,
                          std::uint64_t last) {
    const PartPlan plan = plan_parts(size, all);
    EXPECT_EQ(plan.part_bytes, mebibytes * kMebibyte) << size;
    EXPECT_EQ(plan.parts, parts) << size;
    EXPECT_EQ(plan.last_bytes, last) << size;
  };
  expect(52428800000, 5, 10000, 5242880);
  expect(52428800001, 6, 8334, 2097153);
  expect(107374182400, 11, 9310, 1048576);
  expect(5497558138880, 525, 9987, 241172480);
  expect(12 * kMebibyte, 5, 3, 2097152);
  expect(0, 5, 1, 0);
  EXPECT_EQ(plan_parts(UINT64_MAX).parts, 9000U);
}

}  // namespace
}  // namespace lockstep::s3
