// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

/// The memory that the ranks of one communicator share, be they threads or processes.
///
/// It is an unnamed file (memfd) of the process that made the unique id; the others open it through
/// /proc/PID/fd. Nothing is left behind when processes are killed. No locks: a killed rank holds
/// none, the others see that it does not arrive.
namespace lockstep::fake {

inline constexpr int kMostRanks = 16;
inline constexpr std::size_t kSlotBytes = std::size_t{512} << 10U;
inline constexpr std::size_t kChannelBytes = std::size_t{64} << 10U;

/// What a rank says an operation is; it must be the same on all.
struct Operation {
  std::int32_t kind = 0;
  std::int32_t type = 0;
  std::int32_t reduction = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  bool operator==(const Operation&) const = default;
};

/// Written by one rank, read by all.
struct alignas(64) RankState {
  std::atomic<std::uint32_t> present;
  std::int32_t device;  // all four before `present`
  std::int32_t ranks;
  std::uint64_t host;                // of NCCL_HOSTID
  std::atomic<std::uint32_t> phase;  // barriers this rank has come to
  Operation operation;               // of the phase
  std::atomic<std::uint32_t> finalized;
  // ncclCommSplit, by its number: said, named by the group's first rank, read.
  std::atomic<std::uint32_t> split_said;
  std::atomic<std::uint32_t> split_named;
  std::atomic<std::uint32_t> split_read;
  std::int32_t color;
  std::int32_t key;
  ncclUniqueId child;
};

/// From one rank to another; a piece of a message at a time.
struct alignas(64) Channel {
  std::atomic<std::uint32_t> written;  // pieces
  std::atomic<std::uint32_t> read;
  std::atomic<std::uint32_t> mismatch;
  std::int32_t type;
  std::uint64_t count;  // elements of the whole message
  std::uint64_t bytes;  // of this piece
  unsigned char data[kChannelBytes];
};

struct Shared {
  std::uint64_t nonce;
  alignas(64) std::atomic<std::uint32_t> bell;  // a futex: rung at every change
  RankState ranks[kMostRanks];
  alignas(4096) unsigned char slots[kMostRanks][kSlotBytes];
  Channel channels[kMostRanks][kMostRanks];  // [from][to]
};

class Segment {
 public:
  /// Makes the file; it stays open in this process until forget().
  static bool make(ncclUniqueId& id, std::string& error);
  static void forget(const ncclUniqueId& id);
  /// Null with a message if the file is gone.
  static std::shared_ptr<Segment> open(const ncclUniqueId& id, std::string& error);

  explicit Segment(Shared* shared) : shared_(shared) {}
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Shared& shared() { return *shared_; }
  RankState& rank(int i) { return shared_->ranks[i]; }

  void ring();
  /// Sleeps until `done` (true) or `stop` (false).
  template <typename Done, typename Stop>
  bool wait(Done done, Stop stop) {
    for (int i = 0;; ++i) {
      const std::uint32_t seen = shared_->bell.load();
      if (done()) return true;
      if (stop()) return false;
      if (i < kYields) {
        std::this_thread::yield();
      } else {
        sleep(seen);
      }
    }
  }

 private:
  static constexpr int kYields = 20;
  void sleep(std::uint32_t seen);

  Shared* shared_;
};

}  // namespace lockstep::fake
