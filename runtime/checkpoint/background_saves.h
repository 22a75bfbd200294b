// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/checkpoint.h"
#include "runtime/checkpoint/save_worker.h"

namespace lockstep {

struct AgreedSave;  // runtime/checkpoint/checkpointer_state.h
struct ShardHead;   // runtime/checkpoint/head.h
struct SaveSlot;    // background_saves.cpp

/// The two host slots of a rank and the thread that empties them; see Checkpointer.
///
/// A save is first `writing` on every rank, then, when poll() finds all shards written, it is
/// `committing` on rank 0. Which stage a slot is in is known to all ranks alike, and changes only
/// in begin() and poll().
class BackgroundSaves {
 public:
  /// `checkpoint` outlives this.
  explicit BackgroundSaves(Checkpointer::State& checkpoint);
  ~BackgroundSaves();
  BackgroundSaves(const BackgroundSaves&) = delete;
  BackgroundSaves& operator=(const BackgroundSaves&) = delete;

  bool begin(const TrainState& scalars, const StateDict& state);
  std::vector<SaveEnd> poll();
  std::vector<SaveEnd> drain();
  int in_flight() const noexcept;
  /// On rank 0: whether another launch has claimed the job, and which. Empty also where the store
  /// does not say so within seconds.
  std::string fenced_by();
  /// Nothing is written or removed on this rank. After a save that hangs it may never be.
  bool idle() const { return worker_.idle(); }

 private:
  using Words = std::vector<std::array<std::int64_t, 2>>;  // of each rank, of each slot

  Words exchange();
  std::vector<SaveEnd> advance(const Words& words);
  std::int64_t word_of(SaveSlot& slot);
  void write_shard_of(SaveSlot& slot);
  void commit(SaveSlot& slot, const std::vector<std::string>& written);
  /// A newer launch owns the job: gives up the other saves too and waits a while until what they
  /// have written is gone.
  void leave_nothing_if_fenced(std::vector<SaveEnd>& ends);
  SaveEnd give_up(SaveSlot& slot, const std::string& failure);
  /// Collective: copies the state into a slot. False: some rank has no memory for a second copy.
  bool copy(SaveSlot& slot, const ShardHead& head, const StateDict& state);

  Checkpointer::State& checkpoint_;
  std::array<std::unique_ptr<SaveSlot>, 2> slots_;
  std::uint64_t begun_ = 0;
  bool has_one_slot_ = false;         // there is no memory for both
  std::vector<std::string> remarks_;  // for the next save that ends well; the same on every rank
  SaveWorker worker_;                 // last: it ends before the slots do
};

}  // namespace lockstep
