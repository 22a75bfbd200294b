// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/s3_bucket.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/s3/base64.h"
#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

constexpr int kDoubts = 6;  // how often a create whose outcome is not known is looked into
constexpr std::size_t kMostPages = 100'000;

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_absent(const Reply& reply) {
  return reply.failure.status == 404 && reply.failure.code != "NoSuchBucket";
}

[[noreturn]] void fail(const Reply& reply) { throw to_error(reply.failure); }

bool incomplete(Failure& failure, const std::string& why) {
  failure.code = "IncompleteAnswer";
  failure.message = why;
  return false;
}

/// That a 206 holds `asked` bytes from `offset` on, or as many as the object has.
bool is_range(const HttpAnswer& answer, std::uint64_t offset, std::uint64_t asked,
              Failure& failure) {
  if (answer.status != 206) return incomplete(failure, "the store ignores the range asked for");
  const std::string text = answer.header("content-range");  // bytes 0-9/100
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == std::string::npos || slash == std::string::npos ||
      slash < dash) {
    return incomplete(failure, "the answer does not say its range");
  }
  const auto begin = number_of(std::string_view(text).substr(6, dash - 6));
  const auto last = number_of(std::string_view(text).substr(dash + 1, slash - dash - 1));
  const auto total = number_of(std::string_view(text).substr(slash + 1));
  if (!begin || !last || !total || *begin != offset || *total <= offset ||
      *last != std::min(offset + asked, *total) - 1 || answer.into_bytes != *last - *begin + 1) {
    return incomplete(failure, "the answer is another range than asked for, or cut off");
  }
  return true;
}

bool has_root(const HttpAnswer& answer, std::string_view name, Failure& failure) {
  const auto root = parse_xml(answer.body);
  if (root && root->name == name) return true;
  incomplete(failure, "the answer is cut off or says something else");
  read_error_body(answer.body, failure);
  return false;
}

std::string unquoted(std::string text) {
  std::erase(text, '"');
  return text;
}

}  // namespace

Call Bucket::call(std::string operation, std::string method, const std::string& key) const {
  Call made{.operation = std::move(operation), .method = std::move(method), .key = key};
  const Encryption& encryption = client_.settings().encryption;
  if (!key.empty()) made.headers = encryption.on_all;
  return made;
}

Headers Bucket::creating(const std::string& nonce) const {
  const Settings& settings = client_.settings();
  Headers headers = settings.encryption.on_all;
  headers.insert(headers.end(), settings.encryption.on_create.begin(),
                 settings.encryption.on_create.end());
  headers.emplace_back(std::string(settings.dialect.prefix) + "meta-lockstep-nonce", nonce);
  return headers;
}

std::optional<std::string> Bucket::get(const std::string& key) {
  Reply reply = client_.send(call("GetObject", "GET", key));
  if (reply.ok) return std::move(reply.answer.body);
  if (is_absent(reply)) return std::nullopt;
  fail(reply);
}

std::optional<std::size_t> Bucket::get(const std::string& key, std::uint64_t offset,
                                       std::span<std::byte> into) {
  if (into.empty()) return head(key) ? std::optional<std::size_t>(0) : std::nullopt;
  std::size_t got = 0;
  std::string etag;  // of what was cut off, so that the rest is of the same object
  bool may_be_cut = true;
  for (int cuts = 0;; ++cuts) {
    const std::uint64_t begin = offset + got;
    Call request = call("GetObject", "GET", key);
    request.into = into.subspan(got);
    request.headers.emplace_back(
        "Range", "bytes=" + std::to_string(begin) + "-" + std::to_string(offset + into.size() - 1));
    if (!etag.empty()) request.headers.emplace_back("If-Match", etag);
    request.returns_cut = may_be_cut && cuts < client_.settings().attempts;
    request.check = [&](const HttpAnswer& answer, Failure& failure) {
      return is_range(answer, begin, request.into.size(), failure);
    };
    Reply reply = client_.send(request);
    if (reply.ok) return got + reply.answer.into_bytes;
    if (request.returns_cut && reply.answer.status == 206 && !reply.answer.whole()) {
      const std::string start = "bytes " + std::to_string(begin) + "-";
      const std::string tag = reply.answer.header("etag");
      const bool is_part = reply.answer.header("content-range").starts_with(start);
      may_be_cut = is_part && !tag.empty() && reply.answer.into_bytes < request.into.size();
      if (may_be_cut) {
        got += reply.answer.into_bytes;
        etag = tag;
      }
      continue;
    }
    if (got == 0 && is_absent(reply)) return std::nullopt;
    if (got == 0 && reply.failure.status == 416) return std::size_t{0};
    if (reply.failure.status == 412) reply.failure.message = "the object changed while it was read";
    fail(reply);
  }
}

std::optional<ObjectHead> Bucket::head(const std::string& key) {
  Call request = call("HeadObject", "HEAD", key);
  request.check = [](const HttpAnswer& answer, Failure& failure) {
    return number_of(answer.header("content-length")).has_value() ||
           incomplete(failure, "the answer does not say the object's size");
  };
  const Reply reply = client_.send(request);
  if (is_absent(reply)) return std::nullopt;
  if (!reply.ok) fail(reply);
  const std::string prefix(client_.settings().dialect.prefix);
  return ObjectHead{.size = *number_of(reply.answer.header("content-length")),
                    .nonce = reply.answer.header(prefix + "meta-lockstep-nonce")};
}

std::vector<ObjectInfo> Bucket::list(const std::string& prefix) {
  std::vector<ObjectInfo> found;
  std::string token;
  for (std::size_t page = 0; page < kMostPages; ++page) {
    Call request = call("ListObjectsV2", "GET", "");
    request.query = {{"list-type", "2"}, {"prefix", prefix}};
    if (!token.empty()) request.query.emplace_back("continuation-token", token);
    request.check = [](const HttpAnswer& answer, Failure& failure) {
      return has_root(answer, "ListBucketResult", failure);
    };
    Reply reply = client_.send(request);
    if (!reply.ok) fail(reply);
    const auto root = parse_xml(reply.answer.body);
    for (const XmlElement& each : root->children) {
      if (each.name != "Contents") continue;
      const auto size = number_of(each.text_of("Size"));
      if (!size) {
        reply.failure.message = "the listing does not say the size of " + each.text_of("Key");
        fail(reply);
      }
      found.push_back({each.text_of("Key"), *size});
    }
    if (root->text_of("IsTruncated") != "true") break;
    const std::string next = root->text_of("NextContinuationToken");
    if (next.empty() || next == token) {
      reply.failure.message = "the store names no next page of the listing";
      fail(reply);
    }
    token = next;
  }
  std::sort(found.begin(), found.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const ObjectInfo& a, const ObjectInfo& b) { return a.key == b.key; }),
              found.end());
  return found;
}

void Bucket::remove(const std::string& key) {
  const Reply reply = client_.send(call("DeleteObject", "DELETE", key));
  if (!reply.ok && !is_absent(reply)) fail(reply);
}

Creation Bucket::put_if_absent(const std::string& key, const Body& body) {
  // Tells our own object from another's where the answer to a success was lost on the way.
  const std::string nonce = random_hex(16);
  const Dialect& dialect = client_.settings().dialect;
  Call request = call("PutObject", "PUT", key);
  request.headers = creating(nonce);
  request.headers.emplace_back(dialect.condition, dialect.condition_value);
  request.body = body;
  request.repeat = Repeat::if_refused;
  for (int doubt = 0;; ++doubt) {
    const Reply reply = client_.send(request);
    if (reply.ok) return Creation::created;
    const bool taken = reply.failure.status == 412 || reply.failure.status == 409;
    const bool later = remedy_for(reply.failure.status, reply.failure.code) == Remedy::retry;
    if (!taken && (reply.refused || !later)) fail(reply);
    if (const auto there = head(key)) {
      return there->nonce == nonce ? Creation::created : Creation::exists;
    }
    if (doubt == kDoubts && taken) {
      // As a Ceph release did that had the condition the wrong way round.
      throw StorageError(
          to_error(reply.failure).what() + std::string("; but there is no object of this name"),
          "this store cannot create an object only if there is none: update it, or "
          "use another; see `lockstep ckpt probe`",
          reply.failure.worked_before ? Outcome::failed_elsewhere : Outcome::config);
    }
    if (doubt == kDoubts) fail(reply);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << doubt));
  }
}

Upload Bucket::begin_upload(const std::string& key, const std::string& nonce) {
  Call request = call("CreateMultipartUpload", "POST", key);
  request.query = {{"uploads", ""}};
  request.headers = creating(nonce);
  request.check = [](const HttpAnswer& answer, Failure& failure) {
    return has_root(answer, "InitiateMultipartUploadResult", failure);
  };
  const Reply reply = client_.send(request);
  if (!reply.ok) fail(reply);
  return {.key = key, .id = parse_xml(reply.answer.body)->text_of("UploadId")};
}

UploadedPart Bucket::upload_part(const Upload& upload, std::uint64_t number, const Body& body,
                                 const std::optional<Md5Digest>& md5) {
  Call request = call("UploadPart", "PUT", upload.key);
  request.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload.id}};
  request.body = body;
  if (md5) {
    // Signed like all headers, so the payload itself need not be.
    request.headers.emplace_back("Content-MD5", base64(std::as_bytes(std::span(*md5))));
    request.payload_hash = "UNSIGNED-PAYLOAD";
  }
  const Reply reply = client_.send(request);
  if (!reply.ok) fail(reply);
  return {.number = number, .etag = unquoted(reply.answer.header("etag"))};
}

Creation Bucket::complete(const Upload& upload, const std::vector<UploadedPart>& parts,
                          const std::string& nonce) {
  // Ceph RGW ignores the condition on this request.
  if (head(upload.key)) return Creation::exists;
  std::string body = "<CompleteMultipartUpload>";
  for (const UploadedPart& part : parts) {
    body += "<Part><PartNumber>" + std::to_string(part.number) + "</PartNumber><ETag>\"" +
            part.etag + "\"</ETag></Part>";
  }
  body += "</CompleteMultipartUpload>";
  Call request = call("CompleteMultipartUpload", "POST", upload.key);
  const Dialect& dialect = client_.settings().dialect;
  if (dialect.completes_conditionally) {
    request.headers.emplace_back(dialect.condition, dialect.condition_value);
  }
  request.query = {{"uploadId", upload.id}};
  request.body = std::as_bytes(std::span(body));
  request.repeat = Repeat::if_refused;
  request.patience = std::chrono::seconds(90);
  request.check = [](const HttpAnswer& answer, Failure& failure) {
    return is_complete_result(answer.body, failure);
  };
  for (int doubt = 0;; ++doubt) {
    const Reply reply = client_.send(request);
    if (reply.ok) return Creation::created;
    if (const auto there = head(upload.key)) {
      return there->nonce == nonce ? Creation::created : Creation::exists;
    }
    const bool later = remedy_for(reply.failure.status, reply.failure.code) == Remedy::retry;
    if (reply.refused || !later || doubt == kDoubts) fail(reply);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << doubt));
  }
}

void Bucket::abort(const Upload& upload) {
  Call request = call("AbortMultipartUpload", "DELETE", upload.key);
  request.query = {{"uploadId", upload.id}};
  const Reply reply = client_.send(request);
  if (!reply.ok && !is_absent(reply)) fail(reply);
}

std::vector<Upload> Bucket::uploads(const std::string& prefix) {
  std::vector<Upload> found;
  std::string key_marker;
  std::string id_marker;
  for (std::size_t page = 0; page < kMostPages; ++page) {
    Call request = call("ListMultipartUploads", "GET", "");
    request.query = {{"uploads", ""}, {"prefix", prefix}};
    if (!key_marker.empty()) {
      request.query.emplace_back("key-marker", key_marker);
      request.query.emplace_back("upload-id-marker", id_marker);
    }
    request.check = [](const HttpAnswer& answer, Failure& failure) {
      return has_root(answer, "ListMultipartUploadsResult", failure);
    };
    const Reply reply = client_.send(request);
    if (!reply.ok) fail(reply);
    const auto root = parse_xml(reply.answer.body);
    for (const XmlElement& each : root->children) {
      if (each.name == "Upload") found.push_back({each.text_of("Key"), each.text_of("UploadId")});
    }
    const std::string next = root->text_of("NextKeyMarker");
    const std::string next_id = root->text_of("NextUploadIdMarker");
    if (root->text_of("IsTruncated") != "true" || next.empty()) return found;
    if (next == key_marker && next_id == id_marker) return found;
    key_marker = next;
    id_marker = next_id;
  }
  return found;
}

}  // namespace lockstep::s3
