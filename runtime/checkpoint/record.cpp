// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/json.h"

namespace lockstep {
namespace {

constexpr std::string_view kCrcStart = ",\"crc32c\":\"";
constexpr std::string_view kCrcEnd = "\"}\n";
constexpr std::size_t kCrcDigits = 8;
constexpr std::size_t kTail = kCrcStart.size() + kCrcDigits + kCrcEnd.size();

// In the order of RecordBody.
constexpr std::array kKinds = {"", "JOB", "CLAIM", "COMMIT", "RETIRE", "NOTE"};

std::string crc_text(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  std::array<char, 16> digits = {};
  std::snprintf(digits.data(), digits.size(), "%08x", crc);
  return digits.data();
}

const char* kind_of(const RecordBody& body) { return kKinds.at(body.index()); }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void add_members(Json& json, const UnknownRecord& /*body*/) { json["kind"] = "UNKNOWN"; }
void add_members(Json& json, const JobRecord& body) { json["fingerprint"] = body.fingerprint; }
void add_members(Json& json, const ClaimRecord& body) {
  json["world"] = body.world;
  json["mesh"] = {{"dp", body.mesh.dp}, {"tp", body.mesh.tp}, {"zero", body.mesh.zero}};
  json["code"] = to_json(body.code);
}
void add_members(Json& json, const CommitRecord& body) {
  json["step"] = body.step;
  json["tokens"] = body.tokens;
  json["manifest"] = {
      {"key", body.manifest.key}, {"size", body.manifest.size}, {"sha256", body.manifest.sha256}};
  json["bytes"] = body.bytes;
  json["shards"] = body.shards;
  json["parent_seq"] = or_null(body.parent_seq);
}
void add_members(Json& json, const RetireRecord& body) {
  json["seqs"] = body.seqs;
  json["reason"] = body.reason;
}
void add_members(Json& json, const NoteRecord& body) {
  json["what"] = body.what;
  json["text"] = body.text;
  json["commit"] = or_null(body.commit);
}

/// `,"name":value` with 17 digits, which nlohmann's writer has no way to ask for.
std::string real_member(const char* name, double value) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), ",\"%s\":%.17g", name, value);
  return text.data();
}

RecordBody read_body(const Json& json, const std::string& kind) {
  if (kind == "JOB") return JobRecord{.fingerprint = get_hex(json, "fingerprint", 64)};
  if (kind == "CLAIM") {
    const Json& mesh = get_object(json, "mesh");
    return ClaimRecord{.world = get_integer(json, "world"),
                       .mesh = {.dp = get_integer(mesh, "dp"),
                                .tp = get_integer(mesh, "tp"),
                                .zero = get_integer(mesh, "zero")},
                       .code = get_strings(json, "code")};
  }
  if (kind == "COMMIT") {
    const Json& manifest = get_object(json, "manifest");
    return CommitRecord{.step = get_integer(json, "step"),
                        .tokens = get_integer(json, "tokens"),
                        .manifest = {.key = get_key(manifest, "key"),
                                     .size = get_integer(manifest, "size"),
                                     .sha256 = get_hex(manifest, "sha256", 64)},
                        .bytes = get_integer(json, "bytes"),
                        .shards = get_integer(json, "shards"),
                        .parent_seq = get_optional_integer(json, "parent_seq"),
                        .eval_loss = find_real(json, "eval_loss")};
  }
  if (kind == "RETIRE") {
    RetireRecord retire{.seqs = {}, .reason = get_string(json, "reason")};
    for (const Json& seq : get_array(json, "seqs")) retire.seqs.push_back(as_integer(seq, "seqs"));
    return retire;
  }
  if (kind == "NOTE") {
    return NoteRecord{
        .what = get_string(json, "what"),
        .text = get_string(json, "text"),
        .commit = json.contains("commit") ? get_optional_integer(json, "commit") : std::nullopt};
  }
  return UnknownRecord{};
}

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what, "the record is damaged; older records still count");
}

}  // namespace

void check_format(const std::string& format, const std::string& object) {
  const std::size_t dot = format.find('.');
  std::uint64_t major = 0;
  const char* end = format.data() + std::min(dot, format.size());
  const auto parsed = std::from_chars(format.data(), end, major);
  if (dot == std::string::npos || parsed.ec != std::errc() || parsed.ptr != end) {
    refuse(object + " has format \"" + format + "\", which is no version");
  }
  if (major > kFormatMajor) {
    throw ConfigError(object + " was written in format " + format + "; this build reads up to " +
                          std::to_string(kFormatMajor) + ".x",
                      "use the newer lockstep that wrote it");
  }
}

std::string encode(const Record& record) {
  Json json;
  json["fmt"] = kFormat;
  json["seq"] = record.seq;
  json["kind"] = kind_of(record.body);
  json["job"] = record.job;
  json["epoch"] = record.epoch;
  json["nonce"] = record.nonce;
  json["host"] = record.host;
  json["time"] = record.time;
  std::visit([&](const auto& body) { add_members(json, body); }, record.body);
  std::string text = to_text(json);
  text.pop_back();
  const auto* commit = std::get_if<CommitRecord>(&record.body);
  if (commit && commit->eval_loss && std::isfinite(*commit->eval_loss)) {
    text += real_member("eval_loss", *commit->eval_loss);
  }
  const std::string crc = crc_text(text);
  text.append(kCrcStart).append(crc).append(kCrcEnd);
  if (text.size() >= kRecordLimit) {
    throw UsageError("log record of " + std::to_string(text.size()) + " bytes; " +
                         std::to_string(kRecordLimit - 1) + " are allowed",
                     "shorten the texts in `code`");
  }
  return text;
}

Record decode(std::string_view text, std::uint64_t seq) {
  if (text.size() >= kRecordLimit) refuse("it is longer than a record may be");
  if (text.size() < kTail) refuse("it is truncated");
  const std::string_view covered = text.substr(0, text.size() - kTail);
  const std::string_view tail = text.substr(covered.size());
  if (!tail.starts_with(kCrcStart) || !tail.ends_with(kCrcEnd)) refuse("it does not end as one");
  if (tail.substr(kCrcStart.size(), kCrcDigits) != crc_text(covered)) {
    refuse("its checksum is wrong");
  }
  const Json json = parse_json(text.substr(0, text.size() - 1));
  check_format(get_string(json, "fmt"), "log record " + std::to_string(seq));
  Record record{.seq = get_integer(json, "seq"),
                .job = get_string(json, "job"),
                .epoch = get_integer(json, "epoch"),
                .nonce = get_hex(json, "nonce", 32),
                .host = get_string(json, "host"),
                .time = get_string(json, "time"),
                .body = read_body(json, get_string(json, "kind"))};
  if (record.seq != seq) refuse("it is the record of seq " + std::to_string(record.seq));
  return record;
}

std::string model_fingerprint(std::vector<ModelTensor> model) {
  std::sort(model.begin(), model.end(),
            [](const ModelTensor& a, const ModelTensor& b) { return a.name < b.name; });
  Sha256 hash;
  for (const ModelTensor& tensor : model) {
    std::string line = tensor.name + "\t";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) line += ",";
      line += std::to_string(tensor.shape[i]);
    }
    hash.update(line + "\n");
  }
  return to_hex(hash.finish());
}

}  // namespace lockstep
