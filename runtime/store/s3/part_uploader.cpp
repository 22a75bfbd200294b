// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part_uploader.h"

#include <algorithm>
#include <utility>

namespace lockstep::s3 {

PartUploader::PartUploader(Bucket& bucket, Upload upload, std::size_t streams)
    : bucket_(bucket), upload_(std::move(upload)) {
  try {
    for (std::size_t i = 0; i < streams; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

PartUploader::~PartUploader() { stop(); }

void PartUploader::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PartUploader::add(PartBody part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || waiting_.empty(); });
  if (failure_) std::rethrow_exception(failure_);
  waiting_.push_back(std::move(part));
  changed_.notify_all();
}

std::vector<UploadedPart> PartUploader::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || (waiting_.empty() && running_ == 0); });
  if (failure_) std::rethrow_exception(failure_);
  std::sort(done_.begin(), done_.end(),
            [](const UploadedPart& a, const UploadedPart& b) { return a.number < b.number; });
  return done_;
}

void PartUploader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const PartBody next = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    changed_.notify_all();
    lock.unlock();
    UploadedPart part;
    std::exception_ptr failure;
    try {
      part = bucket_.upload_part(upload_, next.number, next.body, next.md5);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --running_;
    if (failure && !failure_) failure_ = failure;
    if (!failure) done_.push_back(std::move(part));
    changed_.notify_all();
  }
}

}  // namespace lockstep::s3
