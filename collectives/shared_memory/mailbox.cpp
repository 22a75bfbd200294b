// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/mailbox.h"

#include <new>

namespace lockstep::shared_memory {
namespace {

// Two lines of 64 bytes: the prefetcher fetches them in pairs.
constexpr std::size_t kLine = 128;
// After so many looks a rank yields its core between two of them.
constexpr int kYieldsAfter = 100;
// Some µs; a rank that needs longer may want the core of the one that looks.
constexpr int kLooksSoon = 130;
constexpr int kLooksAtOnce = 30;  // of them, before it pauses between two

}  // namespace

struct Mailbox::Slot {
  alignas(kLine) std::atomic<std::uint64_t> round;  // what follows is that of this round
  Descriptor descriptor;
  std::byte note[kNoteBytes];
  alignas(kLine) std::byte piece[kPieceBytes];

  std::byte* data(std::size_t bytes) noexcept { return bytes <= kNoteBytes ? note : piece; }
};

// What one rank shows. Its memory begins as zeros, which is the state of a rank that has not come.
struct Mailbox::Port {
  alignas(kLine) Slot slots[2];
  alignas(kLine) std::atomic<std::uint64_t> begun;  // sequence · 256 + operation, for messages
  std::atomic<int> core;                            // where it came to the last round
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // it is shared by processes

std::string to_string(const Descriptor& descriptor) {
  std::string text = to_string(descriptor.operation);
  text += " #" + std::to_string(descriptor.sequence);
  if (descriptor.operation == CommOperation::barrier) return text;
  text += " (" + std::to_string(descriptor.count) + " x " + lockstep::to_string(descriptor.dtype);
  if (descriptor.operation == CommOperation::all_reduce) {
    text += std::string(", ") + to_string(descriptor.op);
  }
  if (descriptor.operation == CommOperation::broadcast) {
    text += ", root " + std::to_string(descriptor.detail);
  }
  if (descriptor.operation == CommOperation::reduce_parts ||
      descriptor.operation == CommOperation::reduce_scatter) {
    text += ", plan " + std::to_string(descriptor.detail);
  }
  return text + ")";
}

std::size_t Mailbox::bytes(int ranks) noexcept {
  return sizeof(Port) * static_cast<std::size_t>(ranks);
}

Mailbox::Mailbox(int rank, int size, std::byte* memory)
    : rank_(rank), size_(size), ports_(reinterpret_cast<Port*>(memory)), neighbour_(size) {}

Mailbox::Port& Mailbox::port(int rank) const noexcept {
  return ports_[static_cast<std::size_t>(rank)];
}

void Mailbox::begin(const Descriptor& descriptor) noexcept {
  port(rank_).begun.store(
      descriptor.sequence << 8U | static_cast<std::uint64_t>(descriptor.operation),
      std::memory_order_relaxed);
}

Mailbox::Slot& Mailbox::slot(int rank, std::uint64_t round) const noexcept {
  return port(rank).slots[round % 2];
}

std::byte* Mailbox::outgoing(std::size_t bytes) noexcept {
  return slot(rank_, round_ + 1).data(bytes);
}

const std::byte* Mailbox::incoming(int rank, std::size_t bytes) const noexcept {
  return slot(rank, round_).data(bytes);
}

void Mailbox::show(const Descriptor& mine) noexcept {
  ++round_;
  here_ = 0;
  looks_ = 0;
  port(rank_).core.store(current_core(), std::memory_order_relaxed);
  mine_ = mine;
  Slot& shown = slot(rank_, round_);
  shown.descriptor = mine;
  shown.round.store(round_, std::memory_order_release);
}

bool Mailbox::come_soon() {
  for (int look = 0; look < kLooksSoon; ++look) {
    if (all_here()) {
      check_descriptors();
      return true;
    }
    if (look >= kLooksAtOnce) pause_cpu();
  }
  return false;
}

Mailbox::Round Mailbox::arrival(Wait& wait) { return {*this, wait}; }

Mailbox::Round Mailbox::exchange(const Descriptor& mine, Wait& wait) {
  show(mine);
  return arrival(wait);
}

bool Mailbox::all_here() noexcept {
  const auto has_come = [this](int rank) {
    return slot(rank, round_).round.load(std::memory_order_acquire) >= round_;
  };
  while (here_ < size_ && (here_ == rank_ || has_come(here_))) ++here_;
  if (here_ == size_) return true;
  if (++looks_ == kYieldsAfter) note_late();
  return false;
}

// Of two ranks the higher one moves, so that they do not swap places.
void Mailbox::note_late() noexcept {
  if (here_ < rank_) neighbour_.waited_for(port(here_).core.load(std::memory_order_relaxed));
}

void Mailbox::Round::await_resume() {
  try {
    arrival_.await_resume();
  } catch (const TimeoutError& error) {
    throw TimeoutError(std::string(error.what()) + ", waiting for " + mailbox_.late_ranks(),
                       error.hint());
  }
  mailbox_.check_descriptors();
}

void Mailbox::check_descriptors() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && slot(peer, round_).descriptor != mine_) refuse(peer);
  }
}

void Mailbox::refuse(int peer) const {
  throw UsageError(
      "ranks of a group call different operations: rank " + std::to_string(rank_) + " " +
          to_string(mine_) + ", rank " + std::to_string(peer) + " " +
          to_string(slot(peer, round_).descriptor),
      "every rank must call the same collectives, in the same order and of the same size; look for "
      "a branch that depends on the rank");
}

std::string Mailbox::late_ranks() const {
  std::string text;
  for (int peer = 0; peer < size_; ++peer) {
    if (slot(peer, round_).round.load(std::memory_order_relaxed) >= round_) continue;
    if (!text.empty()) text += ", ";
    text += "rank " + std::to_string(peer);
    const std::uint64_t begun = port(peer).begun.load(std::memory_order_relaxed);
    if (begun == 0) {
      text += " (has begun nothing yet)";
    } else {
      text += " (last began " + std::string(to_string(static_cast<CommOperation>(begun & 0xffU))) +
              " #" + std::to_string(begun >> 8U) + ")";
    }
  }
  return text;
}

}  // namespace lockstep::shared_memory
