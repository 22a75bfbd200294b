// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/shared_memory/core_neighbour.h"
#include "collectives/shared_memory/space.h"
#include "collectives/wait.h"
#include "lockstep/collectives/communicator.h"

namespace lockstep::shared_memory {

/// What a rank believes the group is doing: must be equal on all ranks.
struct Descriptor {
  std::uint64_t sequence = 0;  // operations of this backend so far, this one included
  std::uint64_t count = 0;     // elements or bytes
  std::uint64_t detail = 0;    // root, or a hash of the plan
  CommOperation operation = CommOperation::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  bool operator==(const Descriptor&) const = default;
};

/// "all_reduce #12 (8 x f32, sum)"
std::string to_string(const Descriptor& descriptor);

/// Rounds in which every rank shows every other a descriptor and a piece of data, with one
/// synchronisation each. Up to kNoteBytes of data travel in the cache line that says that the rank
/// has come: one transfer between cores is all that such a round takes.
///
/// A rank owns two slots and uses them in turn. It writes the slot of round t + 2 only after all
/// ranks have come to round t + 1, hence have read what was in it in round t.
class Mailbox {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::size_t kNoteBytes = 24;
  /// Bytes of the space that a group of `ranks` needs, zero-filled.
  static std::size_t bytes(int ranks) noexcept;

  Mailbox(int rank, int size, std::byte* memory);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  /// Tells peers what this rank is about to do, for their messages.
  void begin(const Descriptor& descriptor) noexcept;
  /// Where this rank writes its piece of the next round, of `bytes` up to kPieceBytes.
  std::byte* outgoing(std::size_t bytes) noexcept;
  class Round;
  /// One round: `co_await mailbox.exchange(…)`. Throws UsageError that names both ranks if a peer
  /// shows another descriptor, and TimeoutError that names the late ranks and what they last did.
  Round exchange(const Descriptor& mine, Wait& wait);

  // The halves of exchange().

  /// This rank comes to the next round.
  void show(const Descriptor& mine) noexcept;
  /// Whether all peers come to this round within a few µs. Throws as exchange() does if one shows
  /// another descriptor.
  bool come_soon();
  /// `co_await mailbox.arrival(…)`: until all have come.
  Round arrival(Wait& wait);

  /// The piece of `rank` in the last round, of so many bytes, until this rank comes to the next
  /// one.
  const std::byte* incoming(int rank, std::size_t bytes) const noexcept;

 private:
  struct Slot;
  struct Port;
  // Polled until every peer has come to this round.
  struct Arrival {
    Mailbox* mailbox;
    bool operator()() const { return mailbox->all_here(); }
  };
  Port& port(int rank) const noexcept;
  Slot& slot(int rank, std::uint64_t round) const noexcept;
  bool all_here() noexcept;
  void note_late() noexcept;
  void check_descriptors() const;
  [[noreturn]] void refuse(int peer) const;
  std::string late_ranks() const;

  int rank_;
  int size_;
  Port* ports_;
  std::uint64_t round_ = 0;
  // Of this round. A look at what was just shown would wait until the line has come back.
  Descriptor mine_;
  int here_ = 0;   // ranks below it have come to this round
  int looks_ = 0;  // in this round, in vain
  CoreNeighbour neighbour_;
};

class Mailbox::Round {
 public:
  Round(Mailbox& mailbox, Wait& wait)
      : mailbox_(mailbox), arrival_(wait.until(Arrival{.mailbox = &mailbox})) {}
  bool await_ready() { return arrival_.await_ready(); }
  void await_suspend(std::coroutine_handle<> at) { arrival_.await_suspend(at); }
  void await_resume();

 private:
  Mailbox& mailbox_;
  Wait::Until<Arrival> arrival_;
};

}  // namespace lockstep::shared_memory
