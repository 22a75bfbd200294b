// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One collective operation of one rank: 64 bytes, little-endian, as it lies in the file.
struct LedgerRecord {
  std::uint64_t sequence = 0;  // position in its group's order, from 1; 0: never written
  std::uint64_t count = 0;     // elements
  std::int64_t step = 0;
  std::int64_t enqueued_ns = 0;  // steady clock; the header ties it to the time of day
  std::int64_t started_ns = 0;   // 0: not started
  std::int64_t ended_ns = 0;     // 0: not ended
  std::int32_t bucket = -1;
  std::uint8_t operation = 0;  // CommOperation of collectives
  std::uint8_t dtype = 0;
  std::array<char, 10> group{};  // the name, cut
};
static_assert(sizeof(LedgerRecord) == 64);

/// A memory-mapped ring of the last operations of a rank, readable after `kill -9`.
///
/// A dumb ring: it knows nothing of what it records. One writer thread enqueues, one (perhaps
/// another) starts and ends.
class LedgerRing {
 public:
  struct Header {
    std::array<char, 8> magic{};  // "LSLEDGR1"
    std::uint32_t capacity = 0;   // records
    std::int32_t rank = 0;
    std::int32_t world = 0;
    std::int32_t attempt = 0;
    std::int64_t steady_ns = 0;  // the same moment on both clocks
    std::int64_t unix_ns = 0;
    std::uint64_t written = 0;  // records ever enqueued
    std::array<char, 16> reserved{};
  };
  static_assert(sizeof(Header) == 64);

  /// Makes or replaces the file. Throws StorageError.
  LedgerRing(const std::string& path, int rank, int world, int attempt,
             std::uint32_t capacity = 16384);
  ~LedgerRing();
  LedgerRing(const LedgerRing&) = delete;
  LedgerRing& operator=(const LedgerRing&) = delete;

  /// Writes the record and returns its number, for started() and ended().
  std::uint64_t enqueue(const LedgerRecord& record) noexcept;
  void started(std::uint64_t number, std::int64_t now_ns) noexcept;
  void ended(std::uint64_t number, std::int64_t now_ns) noexcept;

  /// The records of a file, oldest first. Throws DataError if it is no ledger.
  static std::pair<Header, std::vector<LedgerRecord>> read(const std::string& path);

 private:
  LedgerRecord& at(std::uint64_t number) noexcept;

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Header* header_ = nullptr;
  LedgerRecord* records_ = nullptr;
};

}  // namespace lockstep
