// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/multipart_writer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/store/s3/part.h"
#include "runtime/store/s3/part_plan.h"
#include "runtime/store/s3/part_uploader.h"

namespace lockstep::s3 {
namespace {

constexpr std::size_t kStreams = 4;  // parts on their way at once
// Parts that are hashed together while others are on their way. More would take less time on
// vectors of 512 bits, but nothing is sent before the first are.
constexpr std::size_t kHashedTogether = 8;

void check_piece(const std::string& key, std::uint64_t size, std::uint64_t offset,
                 std::size_t bytes) {
  if (offset <= size && bytes <= size - offset) return;
  throw UsageError("object " + key + ": a piece lies beyond its size",
                   "create the object with its whole size");
}

class PutWriter final : public ObjectWriter {
 public:
  PutWriter(Bucket& bucket, std::string key, std::uint64_t size)
      : bucket_(bucket), key_(std::move(key)), all_(size) {}

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    check_piece(key_, all_.size(), offset, bytes.size());
    if (!bytes.empty()) all_.write(offset, bytes);
  }
  Creation commit() override { return bucket_.put_if_absent(key_, all_.body()); }

 private:
  Bucket& bucket_;
  std::string key_;
  Part all_;
};

class MultipartWriter final : public ObjectWriter {
 public:
  MultipartWriter(Bucket& bucket, std::string key, std::uint64_t size, PartPlan plan)
      : bucket_(bucket),
        key_(std::move(key)),
        size_(size),
        plan_(plan),
        nonce_(random_hex(16)),
        upload_(bucket_.begin_upload(key_, nonce_)) {
    try {
      uploader_.emplace(bucket_, upload_, kStreams);
    } catch (...) {
      abort();
      throw;
    }
  }

  ~MultipartWriter() override {
    uploader_.reset();
    if (!committed_) abort();
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    check_piece(key_, size_, offset, bytes.size());
    if (bytes.empty()) return;
    if (!first_) first_ = offset;
    while (!bytes.empty()) {
      const std::uint64_t index = offset / plan_.part_bytes;
      const std::uint64_t within = offset - index * plan_.part_bytes;
      Part& part = part_at(index);
      const std::size_t count = std::min<std::size_t>(bytes.size(), part.size() - within);
      part.write(within, bytes.first(count));
      bytes = bytes.subspan(count);
      offset += count;
    }
  }

  Creation commit() override {
    send_before(plan_.parts);
    for (const auto& [index, part] : held_) send(index, part);
    held_.clear();
    hand_over();
    const Creation made = bucket_.complete(upload_, uploader_->finish(), nonce_);
    committed_ = made == Creation::created;
    return made;
  }

 private:
  void abort() noexcept {
    try {
      bucket_.abort(upload_);
    } catch (const std::exception&) {
      return;  // the sweep of the next launch aborts it
    }
  }

  std::uint64_t bytes_of(std::uint64_t index) const {
    return index + 1 == plan_.parts ? plan_.last_bytes : plan_.part_bytes;
  }

  bool is_held(std::uint64_t index) const { return index * plan_.part_bytes < first_.value_or(0); }

  /// The buffer of a part that is not sent yet; the parts before it are.
  Part& part_at(std::uint64_t index) {
    if (is_held(index)) {
      const auto [at, added] = held_.try_emplace(index);
      if (added) at->second = Part(bytes_of(index));
      return at->second;
    }
    if (index < next_) {
      throw UsageError("object " + key_ + ": a piece comes after later ones",
                       "write in rising order, the piece at offset 0 first or last");
    }
    send_before(index);
    if (current_.empty()) current_ = Part(bytes_of(index));
    return current_;
  }

  /// Sends the parts before `end` that are not held back; those without bytes are zeros.
  void send_before(std::uint64_t end) {
    for (; next_ < end; ++next_) {
      if (is_held(next_)) {
        const auto [at, added] = held_.try_emplace(next_);
        if (added) at->second = Part(bytes_of(next_));
        continue;
      }
      if (current_.empty()) current_ = Part(bytes_of(next_));
      send(next_, std::exchange(current_, {}));
    }
  }

  void send(std::uint64_t index, const Part& part) {
    full_.push_back({.number = index + 1, .body = part.body(), .md5 = {}});
    if (full_.size() == kHashedTogether) hand_over();
  }

  void hand_over() {
    if (!bucket_.settings().signs_parts) {
      std::vector<Pieces> bodies;
      for (const PartBody& part : full_) bodies.push_back(part.body.pieces());
      const std::vector<Md5Digest> digests = md5(bodies);
      for (std::size_t i = 0; i < full_.size(); ++i) full_[i].md5 = digests[i];
    }
    for (PartBody& part : full_) uploader_->add(std::move(part));
    full_.clear();
  }

  Bucket& bucket_;
  std::string key_;
  std::uint64_t size_;
  PartPlan plan_;
  std::string nonce_;
  Upload upload_;
  std::optional<PartUploader> uploader_;
  std::optional<std::uint64_t> first_;  // offset of the first piece
  std::map<std::uint64_t, Part> held_;  // by index, from 0
  std::uint64_t next_ = 0;              // index of the part that is next to go
  Part current_;                        // it; empty: nothing written yet
  std::vector<PartBody> full_;          // that wait to be hashed together
  bool committed_ = false;
};

}  // namespace

std::unique_ptr<ObjectWriter> make_writer(Bucket& bucket, std::string key, std::uint64_t size) {
  const PartPlan plan = plan_parts(size, bucket.settings().parts);
  if (plan.parts == 1) return std::make_unique<PutWriter>(bucket, std::move(key), size);
  return std::make_unique<MultipartWriter>(bucket, std::move(key), size, plan);
}

}  // namespace lockstep::s3
