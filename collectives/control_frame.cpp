// SPDX-License-Identifier: Apache-2.0
#include "collectives/control_frame.h"

namespace lockstep {
namespace {

// Far above any cause's text: a longer frame comes from a stranger.
constexpr std::size_t kLongestBody = std::size_t{1} << 20;
constexpr std::size_t kHeader = 5;  // length, type

CommError malformed() {
  return {"control channel: bytes that are no frame of this version",
          "check that all ranks run the same build"};
}

}  // namespace

BodyWriter& BodyWriter::number(std::int32_t value) {
  const auto bits = static_cast<std::uint32_t>(value);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    body_.push_back(static_cast<char>((bits >> shift) & 0xffU));
  }
  return *this;
}

BodyWriter& BodyWriter::text(std::string_view value) {
  value = value.substr(0, kLongestBody / 4);
  number(static_cast<std::int32_t>(value.size()));
  body_.append(value);
  return *this;
}

std::string_view BodyReader::take(std::size_t bytes) {
  if (rest_.size() < bytes) throw malformed();
  const std::string_view head = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return head;
}

std::int32_t BodyReader::number() {
  std::uint32_t bits = 0;
  unsigned shift = 0;
  for (const char byte : take(4)) {
    bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(byte)) << shift;
    shift += 8;
  }
  return static_cast<std::int32_t>(bits);
}

std::string BodyReader::text() {
  const std::int32_t size = number();
  if (size < 0) throw malformed();
  return std::string(take(static_cast<std::size_t>(size)));
}

std::string encode(const Frame& frame) {
  std::string bytes = BodyWriter().number(static_cast<std::int32_t>(frame.body.size())).take();
  bytes.push_back(static_cast<char>(frame.type));
  return bytes + frame.body;
}

std::optional<Frame> FrameReader::next() {
  if (buffer_.size() < kHeader) return std::nullopt;
  BodyReader header(buffer_);
  const auto size = static_cast<std::uint32_t>(header.number());
  const auto type = static_cast<unsigned char>(buffer_[4]);
  if (size > kLongestBody || type < static_cast<unsigned char>(FrameType::hello) ||
      type > static_cast<unsigned char>(FrameType::verdict)) {
    throw malformed();
  }
  if (buffer_.size() < kHeader + size) return std::nullopt;
  Frame frame{.type = static_cast<FrameType>(type), .body = buffer_.substr(kHeader, size)};
  buffer_.erase(0, kHeader + size);
  return frame;
}

std::string encode_outcome(Outcome outcome) {
  return BodyWriter().number(static_cast<std::int32_t>(outcome)).take();
}

Outcome decode_outcome(std::string_view body) {
  return static_cast<Outcome>(BodyReader(body).number());
}

std::string encode_verdict(const Verdict& verdict) {
  return BodyWriter()
      .number(static_cast<std::int32_t>(verdict.outcome))
      .number(verdict.complete ? 1 : 0)
      .take();
}

Verdict decode_verdict(std::string_view body) {
  BodyReader reader(body);
  Verdict verdict;
  verdict.outcome = static_cast<Outcome>(reader.number());
  verdict.complete = reader.number() != 0;
  return verdict;
}

std::string encode_cause(const AbortCause& cause) {
  return BodyWriter()
      .number(static_cast<std::int32_t>(cause.outcome))
      .number(cause.origin_rank)
      .text(cause.kind)
      .text(cause.what)
      .text(cause.hint)
      .take();
}

AbortCause decode_cause(std::string_view body) {
  BodyReader reader(body);
  AbortCause cause;
  cause.outcome = static_cast<Outcome>(reader.number());
  cause.origin_rank = reader.number();
  cause.kind = reader.text();
  cause.what = reader.text();
  cause.hint = reader.text();
  return cause;
}

}  // namespace lockstep
