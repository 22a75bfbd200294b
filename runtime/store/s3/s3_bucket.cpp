// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/s3_bucket.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/s3/base64.h"
#include "runtime/store/s3/header_values.h"
#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

constexpr int kDoubts = 6;  // how often a create whose outcome is not known is looked into
constexpr std::size_t kMostPages = 100'000;
constexpr const char* kChanged = "ObjectChanged";  // a code of ours

bool is_absent(const Reply& reply) {
  return reply.failure.status == 404 && reply.failure.code != "NoSuchBucket";
}

[[noreturn]] void fail(const Reply& reply) { throw to_error(reply.failure); }

bool incomplete(Failure& failure, const std::string& why) {
  failure.code = "IncompleteAnswer";
  failure.message = why;
  return false;
}

std::string unquoted(std::string text) {
  std::erase(text, '"');
  return text;
}

/// An etag of all bytes, without quotes. Empty for a weak one: objects that differ may have it too.
std::string strong_etag(const std::string& text) {
  return text.starts_with("W/") ? std::string() : unquoted(text);
}

/// That a 206 holds `asked` bytes from `offset` on, or as many as the object has; `got`: its bytes.
/// `etag`: of the object that is read; empty: any.
bool is_range(const HttpAnswer& answer, std::uint64_t offset, std::uint64_t asked,
              std::uint64_t got, const std::string& etag, Failure& failure) {
  if (answer.status != 206) return incomplete(failure, "the store ignores the range asked for");
  const auto range = parse_content_range(answer.header("content-range"));
  if (!range) return incomplete(failure, "the answer does not say its range");
  if (range->first != offset || range->total <= offset ||
      range->last != std::min(offset + asked, range->total) - 1 ||
      got != range->last - range->first + 1) {
    return incomplete(failure, "the answer is another range than asked for, or cut off");
  }
  const std::string of_answer = strong_etag(answer.header("etag"));
  if (etag.empty() || of_answer.empty() || of_answer == etag) return true;
  failure.code = kChanged;  // by a store that ignores If-Match
  return false;
}

bool has_root(const HttpAnswer& answer, std::string_view name, Failure& failure) {
  const auto root = parse_xml(answer.body);
  if (root && root->name == name) return true;
  incomplete(failure, "the answer is cut off or says something else");
  read_error_body(answer.body, failure);
  return false;
}

bool is_changed(const Reply& reply) {
  return reply.failure.status == 412 || reply.failure.code == kChanged;
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
  std::string text;  // what has come of it
  std::string etag;  // of the object that this is of
  std::uint64_t total = 0;
  bool may_be_cut = true;
  for (int cuts = 0;; ++cuts) {
    Call request = call("GetObject", "GET", key);
    const std::size_t got = text.size();
    if (got > 0) {
      request.headers.emplace_back(
          "Range", "bytes=" + std::to_string(got) + "-" + std::to_string(total - 1));
      request.headers.emplace_back("If-Match", "\"" + etag + "\"");
    }
    request.returns_cut = may_be_cut && cuts < client_.settings().attempts;
    request.check = [&](const HttpAnswer& answer, Failure& failure) {
      // A server that ignores the range sends the whole object, as it is now.
      if (got == 0 || answer.status == 200) return true;
      return is_range(answer, got, total - got, answer.body.size(), etag, failure);
    };
    Reply reply = client_.send(request);
    const bool goes_on = got > 0 && reply.answer.status == 206;
    if (reply.ok) return goes_on ? text + reply.answer.body : std::move(reply.answer.body);
    if (request.returns_cut && reply.answer.is_cut()) {
      if (!goes_on) {
        text.clear();
        etag = strong_etag(reply.answer.header("etag"));
        total = parse_number(reply.answer.header("content-length")).value_or(0);
      }
      const auto range = parse_content_range(reply.answer.header("content-range"));
      const bool fits = !goes_on || (range && range->first == got && range->total == total);
      may_be_cut = fits && !etag.empty() && text.size() + reply.answer.body.size() < total;
      if (may_be_cut) text += reply.answer.body;
      continue;
    }
    if (got == 0 && is_absent(reply)) return std::nullopt;
    if (got > 0 && is_changed(reply)) throw ObjectChangedError(client_.uri(), key);
    fail(reply);
  }
}

std::optional<std::size_t> Bucket::get(const std::string& key, std::uint64_t offset,
                                       std::span<std::byte> into, std::string_view wanted) {
  if (into.empty()) return head(key) ? std::optional<std::size_t>(0) : std::nullopt;
  std::size_t got = 0;
  std::string etag(wanted);  // without one: of what was cut off, so that the rest is of it too
  bool may_be_cut = true;
  for (int cuts = 0;; ++cuts) {
    const std::uint64_t begin = offset + got;
    Call request = call("GetObject", "GET", key);
    request.into = into.subspan(got);
    request.headers.emplace_back(
        "Range", "bytes=" + std::to_string(begin) + "-" + std::to_string(offset + into.size() - 1));
    if (!etag.empty()) request.headers.emplace_back("If-Match", "\"" + etag + "\"");
    request.returns_cut = may_be_cut && cuts < client_.settings().attempts;
    request.check = [&](const HttpAnswer& answer, Failure& failure) {
      return is_range(answer, begin, request.into.size(), answer.into_bytes, etag, failure);
    };
    Reply reply = client_.send(request);
    if (reply.ok) return got + reply.answer.into_bytes;
    if (request.returns_cut && reply.answer.is_cut()) {
      const auto range = parse_content_range(reply.answer.header("content-range"));
      const std::string tag = strong_etag(reply.answer.header("etag"));
      if (!etag.empty() && !tag.empty() && tag != etag) {
        throw ObjectChangedError(client_.uri(), key);
      }
      if (!tag.empty()) etag = tag;
      may_be_cut = range && range->first == begin && !etag.empty() &&
                   reply.answer.into_bytes < request.into.size();
      if (may_be_cut) got += reply.answer.into_bytes;
      continue;
    }
    if (got == 0 && is_absent(reply)) return std::nullopt;
    if (got == 0 && reply.failure.status == 416) return std::size_t{0};
    if (is_changed(reply)) throw ObjectChangedError(client_.uri(), key);
    fail(reply);
  }
}

std::optional<ObjectHead> Bucket::head(const std::string& key) {
  Call request = call("HeadObject", "HEAD", key);
  request.check = [](const HttpAnswer& answer, Failure& failure) {
    return parse_number(answer.header("content-length")).has_value() ||
           incomplete(failure, "the answer does not say the object's size");
  };
  const Reply reply = client_.send(request);
  if (is_absent(reply)) return std::nullopt;
  if (!reply.ok) fail(reply);
  const std::string prefix(client_.settings().dialect.prefix);
  return ObjectHead{.size = *parse_number(reply.answer.header("content-length")),
                    .nonce = reply.answer.header(prefix + "meta-lockstep-nonce"),
                    .etag = strong_etag(reply.answer.header("etag"))};
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
      const auto size = parse_number(each.text_of("Size"));
      if (!size) {
        reply.failure.message = "the listing does not say the size of " + each.text_of("Key");
        fail(reply);
      }
      found.push_back({each.text_of("Key"), *size, strong_etag(each.text_of("ETag"))});
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
