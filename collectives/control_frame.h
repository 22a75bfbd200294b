// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/abort_signal.h"

namespace lockstep {

/// What the processes of a job say to each other beside their collectives.
enum class FrameType : std::uint8_t {
  hello = 1,  // to rank 0: rank and the first half of the token
  welcome,    // from rank 0: the second half
  heartbeat,
  abort,    // a cause
  goodbye,  // to rank 0: my outcome
  verdict,  // from rank 0: everybody's
};

struct Frame {
  FrameType type = FrameType::heartbeat;
  std::string body;
};

/// How all processes end.
struct Verdict {
  Outcome outcome = Outcome::internal;
  bool complete = false;  // every rank is there and none has failed: MPI can be finalised
};

std::string encode(const Frame& frame);

/// Cuts a byte stream into frames. Bytes may arrive in any pieces.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame. Throws CommError on bytes that no peer of ours sends.
  std::optional<Frame> next();

 private:
  std::string buffer_;
};

std::string encode_cause(const AbortCause& cause);
std::string encode_verdict(const Verdict& verdict);
std::string encode_outcome(Outcome outcome);
/// These throw CommError on a body that is too short.
AbortCause decode_cause(std::string_view body);
Verdict decode_verdict(std::string_view body);
Outcome decode_outcome(std::string_view body);

/// Numbers and texts in sequence, little-endian, texts with their length.
class BodyWriter {
 public:
  BodyWriter& number(std::int32_t value);
  BodyWriter& text(std::string_view value);
  std::string take() { return std::move(body_); }

 private:
  std::string body_;
};

class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}
  std::int32_t number();
  std::string text();

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest_;
};

}  // namespace lockstep
