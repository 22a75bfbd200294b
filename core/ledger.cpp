// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "lockstep/core/error.h"
#include "lockstep/core/trace.h"

namespace lockstep {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'S', 'L', 'E', 'D', 'G', 'R', '1'};

[[noreturn]] void refuse(const std::string& path, const char* step) {
  throw StorageError("ledger " + path + ": " + step + ": " + std::strerror(errno),
                     "check that the run folder can be written and has space");
}

}  // namespace

LedgerRing::LedgerRing(const std::string& path, int rank, int world, int attempt,
                       std::uint32_t capacity)
    : bytes_(sizeof(Header) + std::size_t{capacity} * sizeof(LedgerRecord)) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse(path, "open");
  // Real blocks, so that a full disk shows here and not as SIGBUS in a step.
  const int status = posix_fallocate(file, 0, static_cast<off_t>(bytes_));
  if (status != 0) {
    close(file);
    errno = status;
    refuse(path, "reserve space");
  }
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory_ == MAP_FAILED) refuse(path, "map");
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  header_ = new (memory_)
      Header{.magic = kMagic,
             .capacity = capacity,
             .rank = rank,
             .world = world,
             .attempt = attempt,
             .steady_ns = steady_ns(),
             .unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(unix_now).count()};
  records_ = new (static_cast<std::byte*>(memory_) + sizeof(Header)) LedgerRecord[capacity];
}

LedgerRing::~LedgerRing() {
  if (memory_) munmap(memory_, bytes_);
}

LedgerRecord& LedgerRing::at(std::uint64_t number) noexcept {
  return records_[number % header_->capacity];
}

std::uint64_t LedgerRing::enqueue(const LedgerRecord& record) noexcept {
  const std::uint64_t number = header_->written;
  at(number) = record;
  header_->written = number + 1;
  return number;
}

void LedgerRing::started(std::uint64_t number, std::int64_t now_ns) noexcept {
  at(number).started_ns = now_ns;
}

void LedgerRing::ended(std::uint64_t number, std::int64_t now_ns) noexcept {
  at(number).ended_ns = now_ns;
}

std::pair<LedgerRing::Header, std::vector<LedgerRecord>> LedgerRing::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Header header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) || header.magic != kMagic ||
      header.capacity == 0) {
    throw DataError(path + " is no ledger", "take RUN/ledger/<attempt>.<rank>");
  }
  std::vector<LedgerRecord> ring(header.capacity);
  file.read(reinterpret_cast<char*>(ring.data()),
            static_cast<std::streamsize>(ring.size() * sizeof(LedgerRecord)));
  if (!file) throw DataError(path + " is cut short", "the disk may have been full");
  const std::uint64_t kept = std::min<std::uint64_t>(header.written, header.capacity);
  std::vector<LedgerRecord> records;
  records.reserve(kept);
  for (std::uint64_t i = header.written - kept; i < header.written; ++i) {
    records.push_back(ring[i % header.capacity]);
  }
  return {header, std::move(records)};
}

}  // namespace lockstep
