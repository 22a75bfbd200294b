// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace lockstep::s3 {

/// In what the stores that speak S3 differ.
struct Dialect {
  std::string_view name;
  // Signatures.
  std::string_view algorithm;
  std::string_view key_prefix;
  std::string_view service;
  std::string_view terminator;
  // Headers.
  std::string_view prefix;     // of date, payload hash, token, metadata
  std::string_view condition;  // the header by which an object is created only where there is none
  std::string_view condition_value;
  bool completes_conditionally;  // whether CompleteMultipartUpload may carry that header
};

/// Amazon S3, Ceph RGW, MinIO and others.
constexpr Dialect kAws = {.name = "s3",
                          .algorithm = "AWS4-HMAC-SHA256",
                          .key_prefix = "AWS4",
                          .service = "s3",
                          .terminator = "aws4_request",
                          .prefix = "x-amz-",
                          .condition = "If-None-Match",
                          .condition_value = "*",
                          .completes_conditionally = true};

/// Alibaba Cloud OSS by its S3 interface. Untested on the real service.
constexpr Dialect kOss = [] {
  Dialect oss = kAws;
  oss.name = "oss";
  oss.condition = "x-oss-forbid-overwrite";
  oss.condition_value = "true";
  return oss;
}();

/// Google Cloud Storage by its XML interface with HMAC keys. Its own signature, since a request may
/// not mix headers of Amazon's and of Google's. Untested on the real service.
constexpr Dialect kGcs = {.name = "gcs",
                          .algorithm = "GOOG4-HMAC-SHA256",
                          .key_prefix = "GOOG4",
                          .service = "storage",
                          .terminator = "goog4_request",
                          .prefix = "x-goog-",
                          .condition = "x-goog-if-generation-match",
                          .condition_value = "0",
                          .completes_conditionally = false};

}  // namespace lockstep::s3
