// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Tokens that lie together: a buffer, or a file that is read piece by piece.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  virtual std::int64_t size() const noexcept = 0;
  /// Fills `into` with tokens [first, first + into.size()), which are there. Throws DataError for a
  /// token outside the vocabulary, ConfigError where the file has changed since it was opened,
  /// StorageError where it cannot be read.
  virtual void read(std::int64_t first, std::span<std::int32_t> into) const = 0;

 protected:
  TokenSource() = default;
};

/// A row of tokens, made of parts of sources. Copies share the sources. One thread at a time.
class TokenStream {
 public:
  TokenStream() = default;
  /// Of the byte tokeniser: a byte is a token.
  explicit TokenStream(std::vector<std::uint8_t> bytes);

  std::int64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// Fills `into` with tokens [first, first + into.size()). Throws UsageError beyond the end, else
  /// as TokenSource::read.
  void read(std::int64_t first, std::span<std::int32_t> into) const;

  /// Adds tokens [first, first + count) of `source` at the end.
  void append(std::shared_ptr<const TokenSource> source, std::int64_t first, std::int64_t count);
  /// Tokens [first, first + count) as a stream. Throws UsageError beyond the end.
  TokenStream slice(std::int64_t first, std::int64_t count) const;

 private:
  struct Part {
    std::shared_ptr<const TokenSource> source;
    std::int64_t first = 0;  // token of the source
    std::int64_t begin = 0;  // token of the stream
    std::int64_t count = 0;
  };

  // Calls body(part, first token of its source, count) for all that [first, first + count) covers.
  template <typename Body>
  void for_parts(std::int64_t first, std::int64_t count, const Body& body) const;

  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

}  // namespace lockstep
