// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/store/s3/body.h"
#include "runtime/store/s3/s3_bucket.h"

namespace lockstep::s3 {

/// A part that is to be sent.
struct PartBody {
  std::uint64_t number = 0;
  Body body;
  std::optional<Md5Digest> md5;  // of Bucket::upload_part
};

/// Sends the parts of one upload on a few threads. At most one part waits beside those on their
/// way, so that who adds them goes on as the upload does. One thread calls.
class PartUploader {
 public:
  PartUploader(Bucket& bucket, Upload upload, std::size_t streams);
  /// Drops what waits, ends what is on its way.
  ~PartUploader();
  PartUploader(const PartUploader&) = delete;
  PartUploader& operator=(const PartUploader&) = delete;

  /// Waits for room. Throws what an earlier part has failed with.
  void add(PartBody part);
  /// All parts by number, once all are there. Throws what one has failed with.
  std::vector<UploadedPart> finish();

 private:
  void run();
  void stop();

  Bucket& bucket_;
  Upload upload_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PartBody> waiting_;
  std::vector<UploadedPart> done_;
  std::exception_ptr failure_;
  std::size_t running_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::s3
