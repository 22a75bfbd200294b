// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/keys.h"

namespace lockstep {
namespace {

// How long a name that exists may go on reading as absent (a stale entry of a network file system).
constexpr std::chrono::seconds kStaleLimit(10);

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  // A record is UTF-8 and short, whatever the host calls itself.
  std::string text;
  for (const char c : std::string(name.data()).substr(0, 64)) {
    text += c > 0x20 && c < 0x7F ? c : '?';
  }
  return text;
}

std::string random_uuid() {
  std::string hex = random_hex(16);
  hex[12] = '4';
  hex[16] = "89ab"[static_cast<unsigned char>(hex[16]) % 4];
  for (const std::size_t at : {20U, 16U, 12U, 8U}) hex.insert(at, "-");
  return hex;
}

/// Reads an object that is known to be there.
std::optional<std::string> read_existing(ObjectStore& store, const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + kStaleLimit;
  while (true) {
    auto bytes = store.read(key);
    if (bytes || std::chrono::steady_clock::now() > deadline) return bytes;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

LogView read_log(ObjectStore& store) {
  // A listing may be old: it says only from where on to look for the tip.
  std::optional<std::uint64_t> tip;
  for (const ObjectInfo& info : store.list("log/")) {
    const auto seq = record_seq(info.key);
    if (seq && (!tip || *seq > *tip)) tip = seq;
  }
  LogView view;
  while (true) {
    const auto bytes = store.read(record_key(view.next_seq()));
    const bool beyond_tip = !tip || view.next_seq() > *tip;
    if (!bytes && beyond_tip) return view;
    view.add(bytes);
  }
}

Log::Log(ObjectStore& store) : store_(store), view_(read_log(store)), host_(host_name()) {}

Record Log::make_record(const RecordBody& body, std::uint64_t epoch) const {
  return {.seq = view_.next_seq(),
          .job = view_.job(),
          .epoch = epoch,
          .nonce = random_hex(16),
          .host = host_,
          .time = utc_now(),
          .body = body};
}

void Log::fence(const std::string& what) {
  fenced_ = what;
  throw FencedError(what, "another launch runs this job now; stop this one");
}

bool Log::try_append(const Record& record) {
  if (!fenced_.empty()) fence(fenced_);
  const std::string key = record_key(record.seq);
  const std::string text = encode(record);
  const Creation creation = store_.create_if_absent(key, text, record.epoch);
  if (creation == Creation::created) {
    view_.add(text);
    return true;
  }
  const auto bytes = read_existing(store_, key);
  if (bytes == text) {  // ours: the store had lost the answer
    view_.add(bytes);
    return true;
  }
  take(bytes);
  return false;
}

void Log::take(const std::optional<std::string>& bytes) {
  const std::string key = record_key(view_.next_seq());
  const auto theirs = view_.add(bytes);
  if (!theirs) {
    fence("log record " + key + " of store " + store_.uri() +
          " was written by somebody else and cannot be read");
  }
  if (std::holds_alternative<ClaimRecord>(theirs->body)) {
    fence("attempt " + std::to_string(theirs->epoch) + " on host " + theirs->host +
          " has claimed the job in store " + store_.uri() + " at " + theirs->time);
  }
}

void Log::ensure_job(const std::string& fingerprint) {
  if (!view_.empty()) return;
  Record record = make_record(JobRecord{.fingerprint = fingerprint}, 0);
  record.job = random_uuid();
  if (try_append(record)) return;
  // Another launch was first; it may have gone on, so everything behind its JOB counts too.
  view_ = read_log(store_);
}

void Log::check_unclaimed() {
  if (!fenced_.empty()) fence(fenced_);
  while (const auto bytes = store_.read(record_key(view_.next_seq()))) take(bytes);
}

std::uint64_t Log::claim(const ClaimRecord& body) {
  while (true) {
    const std::uint64_t epoch = view_.next_epoch();
    if (!try_append(make_record(body, epoch))) continue;
    epoch_ = epoch;
    return epoch;
  }
}

std::uint64_t Log::append(const RecordBody& body) {
  while (true) {
    const Record record = make_record(body, epoch_);
    if (try_append(record)) return record.seq;
  }
}

}  // namespace lockstep
