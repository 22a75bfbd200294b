// SPDX-License-Identifier: Apache-2.0
// The client against a server that misbehaves as real ones do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/core/error.h"
#include "runtime/store/s3/s3_store.h"
#include "tests/runtime/store/scripted_server.h"

namespace lockstep::s3 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using testing_support::http;
using testing_support::ScriptedServer;

std::string error_body(const std::string& code) {
  return "<Error><Code>" + code + "</Code><Message>why</Message></Error>";
}

std::unique_ptr<ObjectStore> store_at(const ScriptedServer& server,
                                      std::map<std::string, std::string> more = {}) {
  std::map<std::string, std::string> values = {{"AWS_ENDPOINT_URL", server.url()},
                                               {"AWS_ACCESS_KEY_ID", "id"},
                                               {"AWS_SECRET_ACCESS_KEY", "very-secret"},
                                               {"HOME", "/nonexistent"}};
  values.merge(more);
  return open_s3_store("s3", "//bucket/run", [values](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? std::string() : at->second;
  });
}

std::string range_answer(const std::string& body, const std::string& range) {
  return http("206 Partial Content", body, "Content-Range: " + range + "\r\n");
}

std::string nonce_in(const std::string& request) {
  const std::string name = "x-amz-meta-lockstep-nonce: ";
  const std::size_t at = request.find(name);
  return at == std::string::npos ? std::string() : request.substr(at + name.size(), 32);
}

TEST(S3Client, RetriesResetsAndThrottlingAndSignsAnew) {
  ScriptedServer server({"", http("503 Slow Down", error_body("SlowDown")),
                         http("503 Slow Down", error_body("SlowDown")), http("200 OK", "text")});
  EXPECT_EQ(store_at(server)->read("k"), "text");
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(4));
  for (const std::string& request : requests) {
    EXPECT_THAT(request, HasSubstr("GET /bucket/run/k HTTP/1.1"));
    EXPECT_THAT(request, HasSubstr("Authorization: AWS4-HMAC-SHA256 Credential=id/"));
    EXPECT_THAT(request, Not(HasSubstr("very-secret")));
  }
}

TEST(S3Client, DoesNotRepeatWhatIsForbiddenAndSaysWhat) {
  ScriptedServer server({http("403 Forbidden", error_body("AccessDenied"))});
  try {
    store_at(server)->read("k");
    FAIL() << "no error";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("GetObject of run/k failed: HTTP 403 AccessDenied: why"));
    EXPECT_THAT(describe(error), Not(HasSubstr("very-secret")));
    EXPECT_EQ(error.outcome(), Outcome::config);
  }
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST(S3Client, GivesUpAfterItsAttempts) {
  const std::string slow = http("503 Slow Down", error_body("SlowDown"));
  ScriptedServer server({slow, slow, slow, slow});
  EXPECT_THROW(store_at(server, {{"AWS_MAX_ATTEMPTS", "3"}})->read("k"), StorageError);
  EXPECT_THAT(server.requests(), SizeIs(3));
}

TEST(S3Client, TakesTheClockOfAServerThatFindsOursWrong) {
  ScriptedServer server({http("403 Forbidden", error_body("RequestTimeTooSkewed"),
                              "Date: Fri, 24 May 2013 00:00:00 GMT\r\n"),
                         http("200 OK", "text")});
  EXPECT_EQ(store_at(server)->read("k"), "text");
  EXPECT_THAT(server.requests().back(), HasSubstr("x-amz-date: 20130524T0000"));
}

TEST(S3Client, SignsForTheRegionThatTheAnswerNamesOnce) {
  const std::string moved = http("301 Moved Permanently", error_body("PermanentRedirect"),
                                 "x-amz-bucket-region: eu-west-1\r\n");
  ScriptedServer server({moved, http("200 OK", "text")});
  EXPECT_EQ(store_at(server)->read("k"), "text");
  EXPECT_THAT(server.requests().back(), HasSubstr("/eu-west-1/s3/aws4_request"));
  ScriptedServer always({moved, moved, moved, moved});
  EXPECT_THROW(store_at(always)->read("k"), StorageError);
  EXPECT_THAT(always.requests(), SizeIs(2));
}

TEST(S3Client, SaysThatExpiredCredentialsMustBeRenewed) {
  ScriptedServer server({http("400 Bad Request", error_body("ExpiredToken"))});
  try {
    store_at(server)->read("k");
    FAIL() << "no error";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.hint(), HasSubstr("renew"));
  }
}

TEST(S3Client, ReadsAgainWhatWasCutOffOrIsAnotherRange) {
  ScriptedServer server(
      {"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nContent-Range: bytes "
       "2-5/9\r\n\r\nab",
       range_answer("ab", "bytes 2-3/9"), range_answer("abcd", "bytes 0-3/9"),
       http("200 OK", "abcd"), range_answer("abcd", "bytes 2-5/9")});
  std::string into(4, '?');
  EXPECT_EQ(store_at(server)->read("k", 2, std::as_writable_bytes(std::span(into))), 4U);
  EXPECT_EQ(into, "abcd");
  EXPECT_THAT(server.requests(), SizeIs(5));
  EXPECT_THAT(server.requests()[0], HasSubstr("Range: bytes=2-5"));
}

TEST(S3Client, AsksForTheRestOfWhatWasCutOffAndOfTheSameObject) {
  const std::string cut =
      "HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nETag: \"e\"\r\n"
      "Content-Range: bytes 2-5/9\r\n\r\nabc";
  ScriptedServer server({cut, range_answer("d", "bytes 5-5/9")});
  std::string into(4, '?');
  EXPECT_EQ(store_at(server)->read("k", 2, std::as_writable_bytes(std::span(into))), 4U);
  EXPECT_EQ(into, "abcd");
  ASSERT_THAT(server.requests(), SizeIs(2));
  EXPECT_THAT(server.requests()[1], HasSubstr("Range: bytes=5-5"));
  EXPECT_THAT(server.requests()[1], HasSubstr("If-Match: \"e\""));
  ScriptedServer changed({cut, http("412 Precondition Failed", error_body("PreconditionFailed"))});
  try {
    store_at(changed)->read("k", 2, std::as_writable_bytes(std::span(into)));
    FAIL() << "no error";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("changed while it was read"));
  }
}

std::string cut_answer(const std::string& status, const std::string& headers,
                       const std::string& body, std::size_t whole) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(whole) + "\r\n" + headers +
         "\r\n" + body;
}

TEST(S3Client, AsksForTheRestOfAWholeObjectThatWasCutOff) {
  // Case P41.
  constexpr std::size_t kSize = 1573214;
  constexpr std::size_t kGot = 1572864;
  std::string object(kSize, '\0');
  for (std::size_t i = 0; i < kSize; ++i) object[i] = static_cast<char>(i * 2654435761U >> 13U);
  const std::string cut = cut_answer("200 OK", "ETag: \"e\"\r\n", object.substr(0, kGot), kSize);
  const std::string rest = "Content-Range: bytes 1572864-1573213/1573214\r\nETag: \"e\"\r\n";
  {
    ScriptedServer server({cut, http("206 Partial Content", object.substr(kGot), rest)});
    EXPECT_EQ(store_at(server)->read("k"), object);
    ASSERT_THAT(server.requests(), SizeIs(2));
    EXPECT_THAT(server.requests()[0], Not(HasSubstr("Range:")));
    EXPECT_THAT(server.requests()[1], HasSubstr("Range: bytes=1572864-1573213"));
    EXPECT_THAT(server.requests()[1], HasSubstr("If-Match: \"e\""));
  }
  {  // Cut a second time.
    ScriptedServer server(
        {cut, cut_answer("206 Partial Content", rest, object.substr(kGot, 100), kSize - kGot),
         http("206 Partial Content", object.substr(kGot + 100),
              "Content-Range: bytes 1572964-1573213/1573214\r\n")});
    EXPECT_EQ(store_at(server)->read("k"), object);
    EXPECT_THAT(server.requests().back(), HasSubstr("Range: bytes=1572964-1573213"));
  }
  {  // A server that ignores the range: nothing twice.
    ScriptedServer server({cut, http("200 OK", object)});
    EXPECT_EQ(store_at(server)->read("k"), object);
  }
  {
    ScriptedServer server({cut, http("412 Precondition Failed", error_body("PreconditionFailed"))});
    EXPECT_THROW(store_at(server)->read("k"), ObjectChangedError);
    EXPECT_THAT(server.requests(), SizeIs(2));
  }
  {  // A server that ignores the condition: not the end of another object.
    ScriptedServer server({cut, http("206 Partial Content", object.substr(kGot),
                                     "Content-Range: bytes 1572864-1573213/1573214\r\n"
                                     "ETag: \"another\"\r\n")});
    EXPECT_THROW(store_at(server)->read("k"), ObjectChangedError);
  }
  {  // No etag: from the beginning.
    ScriptedServer server(
        {cut_answer("200 OK", "", object.substr(0, kGot), kSize), http("200 OK", object)});
    EXPECT_EQ(store_at(server)->read("k"), object);
    EXPECT_THAT(server.requests().back(), Not(HasSubstr("Range:")));
  }
}

TEST(S3Client, ReadsTheObjectOfTheEtagOrNone) {
  std::string into(4, '?');
  const auto bytes = std::as_writable_bytes(std::span(into));
  const std::string range = "Content-Range: bytes 2-5/9\r\n";
  ScriptedServer server({http("206 Partial Content", "abcd", range + "ETag: \"e\"\r\n")});
  EXPECT_EQ(store_at(server)->read("k", 2, bytes, "e"), 4U);
  EXPECT_THAT(server.requests()[0], HasSubstr("If-Match: \"e\""));
  ScriptedServer changed({http("412 Precondition Failed", error_body("PreconditionFailed"))});
  EXPECT_THROW(store_at(changed)->read("k", 2, bytes, "e"), ObjectChangedError);
  EXPECT_THAT(changed.requests(), SizeIs(1));
  ScriptedServer careless({http("206 Partial Content", "abcd", range + "ETag: \"f\"\r\n")});
  EXPECT_THROW(store_at(careless)->read("k", 2, bytes, "e"), ObjectChangedError);
  EXPECT_THAT(careless.requests(), SizeIs(1));
}

TEST(S3Client, SaysTheEtagOfAnObjectUnlessItIsWeak) {
  ScriptedServer server(
      {http("200 OK", "", "ETag: \"5d-2\"\r\n"), http("200 OK", "", "ETag: W/\"5d\"\r\n")});
  const auto store = store_at(server);
  EXPECT_EQ(store->stat("k")->etag, "5d-2");
  EXPECT_EQ(store->stat("k")->etag, "");
}

TEST(S3Client, KnowsAnObjectOfItsOwnWhoseAnswerWasLost) {
  ScriptedServer server({"", http("200 OK", "", "x-amz-meta-lockstep-nonce: @NONCE@\r\n")});
  EXPECT_EQ(store_at(server)->create_if_absent("k", "mine", 1), Creation::created);
  ASSERT_THAT(server.requests(), SizeIs(2));
  EXPECT_THAT(server.requests()[0], HasSubstr("If-None-Match: *"));
  EXPECT_THAT(server.requests()[1], HasSubstr("HEAD /bucket/run/k"));
}

TEST(S3Client, CreatesWithTheSameNonceWhatALostRequestHasNotCreated) {
  ScriptedServer server({"", http("404 Not Found"), http("200 OK")});
  EXPECT_EQ(store_at(server)->create_if_absent("k", "mine", 1), Creation::created);
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(nonce_in(requests[0]), nonce_in(requests[2]));
}

TEST(S3Client, SaysExistsOfAnObjectWithAnotherNonce) {
  ScriptedServer server({"", http("200 OK", "", "x-amz-meta-lockstep-nonce: another\r\n")});
  EXPECT_EQ(store_at(server)->create_if_absent("k", "mine", 1), Creation::exists);
  EXPECT_THAT(server.requests(), SizeIs(2)) << "no second attempt to write";
}

/// Up to the answers to CompleteMultipartUpload, of an object of two parts.
std::vector<std::string> upload_script(const std::vector<std::string>& more) {
  std::vector<std::string> script = {
      http(
          "200 OK",
          "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"),
      http("200 OK", "", "ETag: \"e\"\r\n"), http("200 OK", "", "ETag: \"e\"\r\n"),
      http("404 Not Found")};
  script.insert(script.end(), more.begin(), more.end());
  return script;
}

constexpr std::uint64_t kTwoParts = std::uint64_t{40} << 20U;

TEST(S3Client, CompletesAgainWhereA200HoldsATransientError) {
  ScriptedServer server(upload_script(
      {http("200 OK", "  \n" + error_body("InternalError")), http("404 Not Found"),
       http("200 OK", "<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>")}));
  EXPECT_EQ(store_at(server)->create("k", kTwoParts, 1)->commit(), Creation::created);
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(7));
  EXPECT_THAT(requests[6], HasSubstr("POST /bucket/run/k?uploadId=u1"));
  EXPECT_THAT(requests[6], HasSubstr("<PartNumber>2</PartNumber>"));
}

TEST(S3Client, TakesALostCompleteForDoneWhereTheObjectIsItsOwn) {
  ScriptedServer server(
      upload_script({http("500 Internal Server Error", error_body("InternalError")),
                     http("200 OK", "", "x-amz-meta-lockstep-nonce: @NONCE@\r\n")}));
  EXPECT_EQ(store_at(server)->create("k", kTwoParts, 1)->commit(), Creation::created);
  EXPECT_THAT(server.requests(), SizeIs(6));
}

TEST(S3Client, FailsAndAbortsWhereA200HoldsARefusal) {
  ScriptedServer server(upload_script(
      {http("200 OK", error_body("AccessDenied")), http("404 Not Found"), http("204 No Content")}));
  EXPECT_THROW(store_at(server)->create("k", kTwoParts, 1)->commit(), StorageError);
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(7));
  EXPECT_THAT(requests[6], HasSubstr("DELETE /bucket/run/k?uploadId=u1"));
}

TEST(S3Client, SendsAFailedPartAgainAlone) {
  std::vector<std::string> script = upload_script(
      {http("200 OK", "<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>")});
  script.insert(script.begin() + 1, "");
  ScriptedServer server(script);
  EXPECT_EQ(store_at(server)->create("k", kTwoParts, 1)->commit(), Creation::created);
  EXPECT_THAT(server.requests(), SizeIs(6));
}

TEST(S3Client, LetsTheStoreCompareTheMd5OfEachPart) {
  ScriptedServer server(upload_script(
      {http("200 OK", "<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>")}));
  EXPECT_EQ(store_at(server)->create("k", kTwoParts, 1)->commit(), Creation::created);
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(5));
  const auto names = [](const std::string& md5) {
    return AllOf(HasSubstr("Content-MD5: " + md5), HasSubstr("content-sha256: UNSIGNED-PAYLOAD"),
                 HasSubstr("SignedHeaders=content-md5;"));
  };
  // Of 32 MiB and of 8 MiB of zeros.
  const std::vector<std::string> parts(requests.begin() + 1, requests.begin() + 3);
  EXPECT_THAT(parts, UnorderedElementsAre(names("WPBt1YjY/7O+tGraYwlDaw=="),
                                          names("lplbWNTL9qqpBBtPAMf2rg==")));
}

TEST(S3Client, ListsAllPagesWithTheTokenEncoded) {
  const auto page = [](const std::string& key, const std::string& token) {
    return http("200 OK", "<ListBucketResult><IsTruncated>" +
                              std::string(token.empty() ? "false" : "true") +
                              "</IsTruncated><NextContinuationToken>" + token +
                              "</NextContinuationToken><Contents><Key>run/" + key +
                              "</Key><Size>3</Size></Contents></ListBucketResult>");
  };
  ScriptedServer server({page("b", "1/x+y=="), page("a", "")});
  const auto found = store_at(server)->list("");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].key, "a");
  EXPECT_THAT(server.requests()[1], HasSubstr("continuation-token=1%2Fx%2By%3D%3D"));
  ScriptedServer endless({page("a", "t"), page("b", "t"), page("c", "t")});
  EXPECT_THROW(store_at(endless)->list(""), StorageError);
  EXPECT_THAT(endless.requests(), SizeIs(2));
}

}  // namespace
}  // namespace lockstep::s3
