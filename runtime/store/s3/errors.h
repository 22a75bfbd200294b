// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep::s3 {

/// What went wrong with a request, without anything secret.
struct Failure {
  std::string store;      // s3://bucket/prefix
  std::string operation;  // PutObject
  std::string key;        // empty where the bucket is meant
  int status = 0;         // 0: there was no answer
  std::string code;       // of the store: SlowDown
  std::string message;    // of the store, or of the network
  std::string request_id;
  bool worked_before = false;  // such requests have succeeded
};

enum class Remedy : std::uint8_t {
  none,         // the same request would fail again
  retry,        // later; it may have been carried out
  clock,        // once, by the server's clock
  credentials,  // once, with new credentials
  region,       // once, signed for the region that the answer names
};

/// What helps against an answer of this status (0: none came) and code.
Remedy remedy_for(int status, std::string_view code);

/// Takes code, message and request id out of an <Error> body; what it lacks stays as it is.
void read_error_body(std::string_view body, Failure& failure);

/// Whether the body of a 200 to CompleteMultipartUpload says that the object is there. Where it
/// says that it is not, or is cut off (code "IncompleteAnswer"), `failure` says why.
bool is_complete_result(std::string_view body, Failure& failure);

/// The error for the user; outcome config where only a person can help. What has worked before may
/// work again, so that is not: credentials are renewed, a policy is put right.
StorageError to_error(const Failure& failure);

}  // namespace lockstep::s3
