// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/store/s3/address.h"
#include "runtime/store/s3/dialect.h"
#include "runtime/store/s3/part_plan.h"
#include "runtime/store/s3/profiles.h"
#include "runtime/store/s3/sigv4.h"
#include "runtime/store/s3/uri.h"
#include "runtime/store/s3/variables.h"

namespace lockstep::s3 {

/// How the store encrypts what it keeps.
struct Encryption {
  Headers on_create;  // of requests that create an object or begin one
  Headers on_all;     // of those too, of each part and of each read: the customer's own key
};

/// Where and how a bucket is reached.
struct Settings {
  Dialect dialect = kAws;
  Endpoint endpoint;
  bool endpoint_is_given = false;  // else it follows from the region
  std::string region;
  Addressing addressing = Addressing::path;
  Encryption encryption;
  std::string ca_bundle;
  int attempts = 12;
  PartLimits parts;
  bool signs_parts = false;  // by their SHA-256; else the store compares their MD5
};

/// The endpoint that `scheme` (s3, oss) has in a region where none is given.
Endpoint usual_endpoint(std::string_view scheme, const std::string& region);

/// From AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION, AWS_CA_BUNDLE,
/// AWS_MAX_ATTEMPTS, AWS_S3_ADDRESSING_STYLE, AWS_S3_SSE, AWS_S3_SSE_KMS_KEY_ID,
/// AWS_S3_SSE_CUSTOMER_KEY_FILE and the profile (there alone what is said of parts); for oss also
/// OSS_ENDPOINT and OSS_REGION. Throws ConfigError for a value that is none, or that this bucket
/// rules out.
Settings read_settings(std::string_view scheme, const std::string& bucket,
                       const Variables& variables, const Profile& profile);

}  // namespace lockstep::s3
