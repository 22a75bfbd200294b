// SPDX-License-Identifier: Apache-2.0
// Headers, files and answers that nobody would write: each is read or refused, none crashes or is
// taken for what it does not say. A run tries the same ones each time; others with
// --gtest_shuffle --gtest_repeat=1000.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "runtime/store/s3/credential_json.h"
#include "runtime/store/s3/errors.h"
#include "runtime/store/s3/header_values.h"
#include "runtime/store/s3/profiles.h"
#include "runtime/store/s3/s3_store.h"
#include "runtime/store/s3/times.h"
#include "runtime/store/s3/uri.h"
#include "tests/runtime/store/scripted_server.h"

namespace lockstep::s3 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::ScriptedServer;

std::mt19937 random_of(unsigned test) {
  const int iteration = ::testing::UnitTest::GetInstance()->random_seed();  // 0 without shuffle
  return std::mt19937(test + 1000U * static_cast<unsigned>(iteration));
}

/// One to four changes: another byte, a piece moved, a piece lost, a number as large as they get.
std::string mutated(const std::string& original, std::mt19937& random) {
  std::string text = original;
  const auto changes = 1 + random() % 4;
  for (std::size_t change = 0; change < changes; ++change) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 4) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.insert(at, original.substr(random() % original.size(), random() % 20));
        break;
      case 2:
        text.erase(at, random() % 10);
        break;
      default:
        text.insert(at, random() % 2 == 0 ? "18446744073709551615" : "9999");
    }
  }
  return text;
}

struct Counts {
  int read = 0;
  int refused = 0;
};

/// `reads`: whether the text was taken for something.
Counts try_all(const std::vector<std::string>& originals, unsigned test, int times,
               const std::function<bool(const std::string&)>& reads) {
  std::mt19937 random = random_of(test);
  Counts counts;
  for (int i = 0; i < times; ++i) {
    const std::string text = mutated(originals[random() % originals.size()], random);
    ++(reads(text) ? counts.read : counts.refused);
  }
  return counts;
}

TEST(S3Fuzz, AContentRangeIsOneOrNothing) {
  const auto reads = [](const std::string& text) {
    const auto range = parse_content_range(text);
    if (!range) return false;
    EXPECT_LE(range->first, range->last) << text;
    EXPECT_LT(range->last, range->total) << text;
    return true;
  };
  const Counts counts =
      try_all({"bytes 0-9/100", "bytes 1572864-1573213/1573214"}, 1, 50'000, reads);
  EXPECT_GT(counts.read, 500);
  EXPECT_GT(counts.refused, 5000);
  for (const char* bad :
       {"bytes 9-0/100", "bytes 0-100/100", "bytes */100", "bytes 0-9/*", "bytes 0-9", "0-9/100",
        "bytes 0/9-100", "bytes -9/100", "bytes +0-9/100", ""}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

TEST(S3Fuzz, ARetryAfterIsAPauseOfAtMostAnHour) {
  const auto reads = [](const std::string& text) {
    const std::chrono::seconds pause = parse_retry_after(text);
    EXPECT_GE(pause.count(), 0) << text;
    EXPECT_LE(pause.count(), 3600) << text;
    return pause.count() > 0;
  };
  const Counts counts = try_all({"120", "1", "Fri, 24 May 2013 00:00:00 GMT"}, 2, 50'000, reads);
  EXPECT_GT(counts.read, 500);
  EXPECT_EQ(parse_retry_after("120").count(), 120);
  EXPECT_EQ(parse_retry_after("-1").count(), 0);
}

TEST(S3Fuzz, ATimeIsOneThatAClockCanCountWith) {
  const auto now = std::chrono::system_clock::now();
  const auto century = std::chrono::hours(24 * 365 * 231);
  const auto check = [&](const std::optional<WallTime>& time, const std::string& text) {
    if (!time) return false;
    EXPECT_GE(*time, WallTime()) << text;
    EXPECT_LE(*time, WallTime() + century) << text;
    EXPECT_LT(*time - now, century) << text;
    return true;
  };
  const Counts dates =
      try_all({"Fri, 24 May 2013 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"}, 3, 50'000,
              [&](const std::string& text) { return check(parse_http_date(text), text); });
  EXPECT_GT(dates.read, 500);
  const Counts times =
      try_all({"2013-05-24T00:00:00Z", "2026-12-03T11:56:17.123+00:00"}, 4, 50'000,
              [&](const std::string& text) { return check(parse_iso_time(text), text); });
  EXPECT_GT(times.read, 500);
  EXPECT_GT(parse_iso_time("9999-12-31T23:59:59Z"), now) << "said for never";
  EXPECT_LT(parse_iso_time("0000-01-01T00:00:00Z"), now);
  EXPECT_FALSE(parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT"));
}

TEST(S3Fuzz, AnErrorBodyFillsInWhatItSaysOrNothing) {
  const std::string whole =
      "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>a &amp; b</Message>"
      "<RequestId>tx0</RequestId></Error>";
  const Counts counts = try_all({whole}, 5, 20'000, [](const std::string& text) {
    Failure failure;
    failure.status = 503;
    read_error_body(text, failure);
    EXPECT_STRNE(to_error(failure).what(), "");
    return !failure.code.empty();
  });
  EXPECT_GT(counts.read, 500);
  EXPECT_GT(counts.refused, 500);
}

TEST(S3Fuzz, AFileOfProfilesIsReadOrRefusedWithoutItsSecrets) {
  const std::string whole =
      "# mine\n[default]\naws_access_key_id = AKIDFUZZ\naws_secret_access_key = very+secret/key=\n"
      "region=eu-west-1\ns3 =\n  addressing_style = path\n  multipart_chunksize = 8MB\n\n"
      "[profile other]\nrole_arn = arn:aws:iam::1:role/x\n";
  const Counts counts = try_all({whole}, 6, 20'000, [](const std::string& text) {
    try {
      parse_profiles(text, "file");
      return true;
    } catch (const ConfigError& error) {
      EXPECT_THAT(describe(error), Not(HasSubstr("secret/")));
      return false;
    }
  });
  EXPECT_GT(counts.read, 500);
  EXPECT_GT(counts.refused, 500);
}

TEST(S3Fuzz, CredentialsInJsonAreReadOrRefusedWithoutTheirText) {
  const std::string whole =
      R"({"Version":1,"AccessKeyId":"AKIDFUZZ","SecretAccessKey":"very+secret/key=",)"
      R"("Token":"t","Expiration":"2026-12-03T12:00:00Z"})";
  const Counts counts = try_all({whole}, 7, 20'000, [](const std::string& text) {
    try {
      const Credentials made = parse_credentials(text, {}, "a test");
      EXPECT_FALSE(made.key_id.empty() || made.secret.empty());
      return true;
    } catch (const StorageError& error) {
      EXPECT_THAT(describe(error), Not(HasSubstr("secret/")));
      return false;
    }
  });
  EXPECT_GT(counts.read, 500);
  EXPECT_GT(counts.refused, 500);
}

TEST(S3Fuzz, AnEndpointIsReadOrRefused) {
  const Counts counts = try_all({"https://s3.eu-west-1.amazonaws.com", "http://127.0.0.1:8000/"}, 8,
                                20'000, [](const std::string& text) {
                                  try {
                                    EXPECT_FALSE(parse_endpoint(text).host.empty()) << text;
                                    return true;
                                  } catch (const ConfigError&) {
                                    return false;
                                  }
                                });
  EXPECT_GT(counts.read, 500);
  EXPECT_GT(counts.refused, 500);
}

/// The client against a server whose heads are damaged; the bodies are right.
TEST(S3Fuzz, AnAnswerWithADamagedHeadIsTheObjectOrAnError) {
  constexpr int kTimes = 300;
  const std::string object = "0123456789";
  const std::string common =
      "\r\nConnection: close\r\nDate: Fri, 24 May 2013 00:00:00 GMT\r\nETag: \"e\"\r\n"
      "x-amz-request-id: tx1\r\nx-amz-bucket-region: us-east-1\r\nContent-Length: ";
  const std::string part =
      "HTTP/1.1 206 Partial Content" + common + "4\r\nContent-Range: bytes 2-5/10";
  const std::string refused = "HTTP/1.1 503 Slow Down" + common + "0\r\nRetry-After: 120";
  std::mt19937 random = random_of(9);
  std::vector<std::string> answers;
  for (int i = 0; i < kTimes; ++i) {
    const bool is_part = random() % 4 != 0;
    answers.push_back(mutated(is_part ? part : refused, random) + "\r\n\r\n" +
                      (is_part ? object.substr(2, 4) : ""));
  }
  ScriptedServer server(answers);
  const std::map<std::string, std::string> variables = {{"AWS_ENDPOINT_URL", server.url()},
                                                        {"AWS_ACCESS_KEY_ID", "id"},
                                                        {"AWS_SECRET_ACCESS_KEY", "very-secret"},
                                                        {"AWS_MAX_ATTEMPTS", "1"},
                                                        {"HOME", "/nonexistent"}};
  const auto store = open_s3_store("s3", "//bucket/run", [&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::string() : at->second;
  });
  Counts counts;
  while (server.requests().size() < kTimes) {
    std::string into(4, '?');
    try {
      const auto got = store->read("k", 2, std::as_writable_bytes(std::span(into)), "e");
      if (got == 4U) {
        EXPECT_EQ(into, object.substr(2, 4));
      }
      ++(got == 4U ? counts.read : counts.refused);
    } catch (const StorageError& error) {
      EXPECT_THAT(describe(error), Not(HasSubstr("very-secret")));
      ++counts.refused;
    }
  }
  EXPECT_GT(counts.read, 10);
  EXPECT_GT(counts.refused, 50);
}

}  // namespace
}  // namespace lockstep::s3
