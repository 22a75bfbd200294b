// SPDX-License-Identifier: Apache-2.0
// Settings, profiles, and credentials that end while a job runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "lockstep/core/error.h"
#include "runtime/store/s3/credential_chain.h"
#include "tests/runtime/store/scripted_server.h"
#include "tests/support/scratch.h"

namespace lockstep::s3 {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using testing_support::http;
using testing_support::ScriptedServer;

Variables variables(std::map<std::string, std::string> values) {
  return [values](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? std::string() : at->second;
  };
}

/// Gives what it is told, a key a fetch; an empty one fails.
class ToldSource final : public CredentialSource {
 public:
  ToldSource(std::deque<Credentials> told, int& asked) : told_(std::move(told)), asked_(asked) {}
  Credentials fetch() override {
    ++asked_;
    Credentials next = told_.empty() ? Credentials{} : told_.front();
    if (!told_.empty()) told_.pop_front();
    if (next.key_id.empty()) throw StorageError("source is down", "none");
    return next;
  }

 private:
  std::deque<Credentials> told_;
  int& asked_;
};

Credentials pair(const std::string& id, WallTime end) {
  return {.key_id = id, .secret = "s", .token = "t", .expires = end};
}

TEST(S3Credentials, AreFetchedAgainFiveMinutesBeforeTheyEnd) {
  const WallTime start{};
  WallTime now = start;
  int asked = 0;
  CredentialCache cache(
      std::make_unique<ToldSource>(
          std::deque{pair("A", start + minutes(20)), pair("B", start + hours(9))}, asked),
      [&] { return now; });
  EXPECT_EQ(cache.get().key_id, "A");
  now = start + minutes(14);
  EXPECT_EQ(cache.get().key_id, "A");
  now = start + minutes(15);
  EXPECT_EQ(cache.get().key_id, "B");
  EXPECT_EQ(asked, 2);
}

TEST(S3Credentials, ThatLiveForSecondsAreNotFetchedAtEachRequest) {
  const WallTime start{};
  WallTime now = start;
  int asked = 0;
  CredentialCache cache(
      std::make_unique<ToldSource>(
          std::deque{pair("A", start + seconds(4)), pair("B", start + hours(1))}, asked),
      [&] { return now; });
  for (const auto& [at, id] : std::map<int, std::string>{{0, "A"}, {1, "A"}, {2, "B"}, {3, "B"}}) {
    now = start + seconds(at);
    EXPECT_EQ(cache.get().key_id, id) << at;
  }
  EXPECT_EQ(asked, 2);
}

TEST(S3Credentials, StayInUseUntilTheyEndWhileTheSourceIsDown) {
  const WallTime start{};
  WallTime now = start;
  int asked = 0;
  CredentialCache cache(
      std::make_unique<ToldSource>(std::deque{pair("A", start + minutes(10))}, asked),
      [&] { return now; });
  EXPECT_EQ(cache.get().key_id, "A");
  now = start + minutes(9);
  EXPECT_EQ(cache.get().key_id, "A");
  EXPECT_EQ(cache.get().key_id, "A");
  EXPECT_EQ(asked, 2) << "a source that is down is not asked at each request";
  now = start + minutes(10);
  EXPECT_THROW(cache.get(), StorageError);
}

TEST(S3Credentials, AreRenewedOnceForAllThatWereRefused) {
  int asked = 0;
  const WallTime end = std::chrono::system_clock::now() + hours(9);
  CredentialCache cache(
      std::make_unique<ToldSource>(std::deque{pair("A", end), pair("B", end)}, asked));
  const Credentials old = cache.get();
  EXPECT_TRUE(cache.renew(old));
  EXPECT_TRUE(cache.renew(old)) << "another thread has renewed them";
  EXPECT_EQ(cache.get().key_id, "B");
  EXPECT_EQ(asked, 2);
}

TEST(S3Credentials, ComeFromTheMachineByASessionToken) {
  ScriptedServer server({http("200 OK", "session"), http("200 OK", "role\n"),
                         http("200 OK", R"({"AccessKeyId":"id","SecretAccessKey":"s","Token":"t",)"
                                        R"("Expiration":"2099-01-01T00:00:00Z"})")});
  const auto source = find_credentials(
      "s3", {}, variables({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url()}}), {});
  const Credentials found = source->fetch();
  EXPECT_EQ(found.key_id, "id");
  EXPECT_TRUE(found.expires.has_value());
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_THAT(requests[0], HasSubstr("PUT /latest/api/token"));
  EXPECT_THAT(requests[2], HasSubstr("/security-credentials/role HTTP"));
  EXPECT_THAT(requests[2], HasSubstr("X-aws-ec2-metadata-token: session"));
}

TEST(S3Credentials, ComeFromTheContainerWithItsToken) {
  ScriptedServer server({http("200 OK", R"({"AccessKeyId":"id","SecretAccessKey":"s"})")});
  const auto source =
      find_credentials("s3", {},
                       variables({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url() + "/creds"},
                                  {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "let-me-in"}}),
                       {});
  EXPECT_EQ(source->fetch().key_id, "id");
  EXPECT_THAT(server.requests()[0], HasSubstr("Authorization: let-me-in"));
  EXPECT_THROW(
      find_credentials(
          "s3", {}, variables({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/creds"}}),
          {}),
      ConfigError);
}

TEST(S3Credentials, AnAnswerThatIsNoneIsNotPrinted) {
  ScriptedServer server({http("200 OK", "secret nonsense")});
  const auto source = find_credentials(
      "s3", {}, variables({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url()}}), {});
  try {
    source->fetch();
    FAIL() << "accepted";
  } catch (const StorageError& error) {
    EXPECT_THAT(describe(error), Not(HasSubstr("nonsense")));
  }
}

TEST(S3Credentials, HalfAPairIsRefused) {
  EXPECT_THROW(find_credentials("s3", {}, variables({{"AWS_ACCESS_KEY_ID", "id"}}), {}),
               ConfigError);
  EXPECT_THROW(
      find_credentials(
          "s3", {}, variables({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "s\n"}}), {}),
      ConfigError);
}

TEST(S3Profiles, AreReadFromBothFiles) {
  const testing_support::ScratchFolder home;
  home.write(
      ".aws/config",
      "# a comment\n[profile other]\nregion = eu-west-1\ns3 =\n  addressing_style = virtual\n"
      "endpoint_url = https://store.example\n[default]\nregion=us-west-2\n");
  home.write(".aws/credentials", "[other]\naws_access_key_id = id\naws_secret_access_key = a=b\n");
  const Profile other = read_profile(variables({{"HOME", home.path()}, {"AWS_PROFILE", "other"}}));
  EXPECT_EQ(other.at("region"), "eu-west-1");
  EXPECT_EQ(other.at("s3.addressing_style"), "virtual");
  EXPECT_EQ(other.at("endpoint_url"), "https://store.example");
  EXPECT_EQ(other.at("aws_secret_access_key"), "a=b");
  EXPECT_EQ(read_profile(variables({{"HOME", home.path()}})).at("region"), "us-west-2");
  EXPECT_THROW(read_profile(variables({{"HOME", home.path()}, {"AWS_PROFILE", "none"}})),
               ConfigError);
  EXPECT_THROW(parse_profiles("[a]\nno equals sign\n", "file"), ConfigError);
}

TEST(S3Settings, AddressAmazonByHostAndOwnServersByPath) {
  const Settings amazon =
      read_settings("s3", "bucket", variables({{"AWS_REGION", "eu-west-1"}}), {});
  EXPECT_EQ(amazon.endpoint.host, "s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(amazon.addressing, Addressing::virtual_host);
  EXPECT_EQ(read_settings("s3", "a.b", variables({}), {}).addressing, Addressing::path);
  const Settings own =
      read_settings("s3", "bucket", variables({{"AWS_ENDPOINT_URL", "http://host:9000/"}}), {});
  EXPECT_EQ(own.addressing, Addressing::path);
  EXPECT_EQ(own.endpoint.host, "host:9000");
}

TEST(S3Settings, AddressOssByHostAlone) {
  const Settings oss =
      read_settings("oss", "b", variables({{"AWS_ENDPOINT_URL", "https://oss.example"}}), {});
  EXPECT_EQ(oss.addressing, Addressing::virtual_host);
  EXPECT_EQ(oss.dialect.condition, "x-oss-forbid-overwrite");
  EXPECT_THROW(read_settings("oss", "b",
                             variables({{"AWS_ENDPOINT_URL", "https://oss.example"},
                                        {"AWS_S3_ADDRESSING_STYLE", "path"}}),
                             {}),
               ConfigError);
  EXPECT_THROW(read_settings("oss", "a_b", variables({{"OSS_REGION", "cn-hangzhou"}}), {}),
               ConfigError);
}

TEST(S3Settings, SpeakGooglesDialectToGoogle) {
  const Settings google = read_settings(
      "s3", "b", variables({{"AWS_ENDPOINT_URL", "https://storage.googleapis.com"}}), {});
  EXPECT_EQ(google.dialect.algorithm, "GOOG4-HMAC-SHA256");
  EXPECT_EQ(google.dialect.prefix, "x-goog-");
}

TEST(S3Settings, RefuseWhatIsNoValueAndEncryptionInTheClear) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"AWS_MAX_ATTEMPTS", "0"},
                                          {"AWS_MAX_ATTEMPTS", "101"},
                                          {"AWS_S3_SSE", "rot13"},
                                          {"AWS_S3_ADDRESSING_STYLE", "mail"},
                                          {"AWS_ENDPOINT_URL", "host:9000"}}) {
    EXPECT_THROW(read_settings("s3", "b", variables({{name, value}}), {}), ConfigError) << name;
  }
  EXPECT_THROW(
      read_settings("s3", "b",
                    variables({{"AWS_ENDPOINT_URL", "http://h"}, {"AWS_S3_SSE", "AES256"}}), {}),
      ConfigError);
  const Settings kms = read_settings(
      "s3", "b", variables({{"AWS_S3_SSE", "aws:kms"}, {"AWS_S3_SSE_KMS_KEY_ID", "key"}}), {});
  EXPECT_THAT(kms.encryption.on_create, SizeIs(2));
}

TEST(S3Settings, TakeTheSizeOfPartsFromTheProfile) {
  const auto bytes = [](const std::string& text) {
    return read_settings("s3", "b", variables({}), {{"s3.multipart_chunksize", text}})
        .parts.least_bytes;
  };
  EXPECT_EQ(read_settings("s3", "b", variables({}), {}).parts.least_bytes, 32 * kMebibyte);
  EXPECT_EQ(bytes("16MB"), 16 * kMebibyte);
  EXPECT_EQ(bytes("5120KB"), 5 * kMebibyte);
  EXPECT_EQ(bytes("6000000"), 6'000'000U);
  for (const char* wrong : {"4MB", "5242879", "2000MB", "16 MB", "16XB", "MB", "-16MB",
                            "18446744073709551615MB", "99999999999999999999"}) {
    EXPECT_THROW(bytes(wrong), ConfigError) << wrong;
  }
}

TEST(S3Settings, SignPartsWhereTheProfileSaysSo) {
  const auto signs = [](const std::string& text) {
    return read_settings("s3", "b", variables({}), {{"s3.payload_signing_enabled", text}})
        .signs_parts;
  };
  EXPECT_FALSE(read_settings("s3", "b", variables({}), {}).signs_parts);
  EXPECT_TRUE(signs("true"));
  EXPECT_FALSE(signs("false"));
  EXPECT_THROW(signs("yes"), ConfigError);
}

}  // namespace
}  // namespace lockstep::s3
