// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/background_saves.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "runtime/checkpoint/checkpointer_state.h"
#include "runtime/checkpoint/lack.h"
#include "runtime/checkpoint/messages.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/checkpoint/snapshot.h"

namespace lockstep {
namespace {

// How long drain() lets this rank's own work go on before it looks at the others again.
constexpr std::chrono::milliseconds kDrainPause(20);

// How long a launch that is fenced stays to take away what it has written.
constexpr std::chrono::seconds kFencedPause(10);

// What a rank says about a slot.
constexpr std::int64_t kNothing = 0;
constexpr std::int64_t kWorking = 1;
constexpr std::int64_t kDone = 2;
constexpr std::int64_t kFailed = 3;

enum class Stage : std::uint8_t { free, writing, committing };

SaveFailure failure_of(const std::exception& error, int rank) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return {.rank = rank,
          .outcome = outcome_of(error),
          .what = error.what(),
          .hint = ours ? ours->hint() : std::string()};
}

}  // namespace

struct SaveSlot {
  // Of the main thread, the same on every rank.
  Stage stage = Stage::free;
  std::uint64_t order = 0;  // older saves have a lower one
  AgreedSave save;

  // Of the task, while there is one.
  ShardHead head;
  Snapshot copy;

  // How far this rank is; of both threads.
  std::mutex mutex;
  int tasks = 0;           // posted and not ended
  bool ended = false;      // the task of this stage
  bool cancelled = false;  // nobody waits for it any more
  std::string failure;     // a message
  std::optional<ManifestShard> shard;
  std::string committed;  // a message, on rank 0
};

BackgroundSaves::BackgroundSaves(Checkpointer::State& checkpoint) : checkpoint_(checkpoint) {
  for (auto& slot : slots_) slot = std::make_unique<SaveSlot>();
}

BackgroundSaves::~BackgroundSaves() = default;

int BackgroundSaves::in_flight() const noexcept {
  return static_cast<int>(std::count_if(
      slots_.begin(), slots_.end(), [](const auto& slot) { return slot->stage != Stage::free; }));
}

bool BackgroundSaves::begin(const TrainState& scalars, const StateDict& state) {
  const Words words = exchange();
  if (has_one_slot_ && in_flight() > 0) return false;
  std::size_t index = 0;
  const auto usable = [&](std::size_t i) {
    return slots_[i]->stage == Stage::free &&
           std::all_of(words.begin(), words.end(),
                       [i](const auto& of_rank) { return of_rank[i] == kNothing; });
  };
  while (index < slots_.size() && !usable(index)) ++index;
  if (index == slots_.size()) return false;

  SaveSlot& slot = *slots_[index];
  AgreedSave save = checkpoint_.agree_on_save(scalars, state);
  ShardHead head = checkpoint_.own_head(save);
  if (!copy(slot, head, state)) return false;
  slot.save = std::move(save);
  slot.head = std::move(head);
  slot.stage = Stage::writing;
  slot.order = ++begun_;
  {
    const std::lock_guard lock(slot.mutex);
    slot.tasks = 1;
    slot.ended = false;
    slot.cancelled = false;
    slot.failure.clear();
    slot.shard.reset();
    slot.committed.clear();
  }
  worker_.post([this, &slot] { write_shard_of(slot); });
  return true;
}

bool BackgroundSaves::copy(SaveSlot& slot, const ShardHead& head, const StateDict& state) {
  Communicator& world = checkpoint_.world;
  bool lacks_memory = false;
  try {
    agree(world, "checkpoint snapshot", [&] {
      try {
        slot.copy.take(pieces_of(head, state), checkpoint_.options.memory_left);
      } catch (const StorageError&) {
        lacks_memory = true;
        throw;
      }
    });
  } catch (const Error& error) {
    slot.copy = {};
    if (in_flight() == 0 || !any(world, lacks_memory)) throw;
    has_one_slot_ = true;
    remarks_.push_back(std::string("saves go on with one copy of the state, there is no memory "
                                   "for a second: ") +
                       error.what());
    return false;
  }
  std::vector<std::string> remarks = checkpoint_.remarks_on(slot.copy);
  std::move(remarks.begin(), remarks.end(), std::back_inserter(remarks_));
  return true;
}

void BackgroundSaves::write_shard_of(SaveSlot& slot) {
  const int rank = checkpoint_.world.rank();
  const std::string key = shard_key(slot.save.id, slot.head.writer);
  std::optional<ManifestShard> shard;
  std::string failure;
  try {
    if (checkpoint_.is_root()) {
      write_with_resources("shard " + key, [&] { checkpoint_.job->check_unclaimed(); });
    }
    shard = write_shard(checkpoint_.store, key, slot.head, slot.copy.data(), [&] {
      worker_.alive();
      const std::lock_guard lock(slot.mutex);
      if (slot.cancelled) throw SaveCancelled();
    });
  } catch (const SaveCancelled&) {
    failure = to_message({.rank = rank, .what = "the save was cancelled", .hint = {}});
  } catch (const std::exception& error) {
    failure = to_message(failure_of(error, rank));
    forget(checkpoint_.store, {key});
  }
  bool unwanted = false;
  {
    const std::lock_guard lock(slot.mutex);
    unwanted = slot.cancelled;
    if (!unwanted) {
      slot.shard = shard;
      slot.failure = failure;
      slot.ended = true;
      --slot.tasks;
    }
  }
  if (!unwanted) return;
  if (shard) forget(checkpoint_.store, {key});
  const std::lock_guard lock(slot.mutex);
  --slot.tasks;
}

void BackgroundSaves::commit(SaveSlot& slot, const std::vector<std::string>& written) {
  slot.stage = Stage::committing;
  if (!checkpoint_.is_root()) return;
  {
    const std::lock_guard lock(slot.mutex);
    slot.ended = false;
    ++slot.tasks;
  }
  Manifest manifest = checkpoint_.manifest_of(slot.save, written);
  // Before the shard of the next save, so that commits are not held up.
  worker_.post_first([this, &slot, manifest = std::move(manifest)] {
    bool cancelled = false;
    {
      const std::lock_guard lock(slot.mutex);
      cancelled = slot.cancelled;
    }
    std::string committed;
    std::string failure;
    if (cancelled) {
      std::vector<std::string> keys;
      for (const ManifestShard& shard : manifest.shards) keys.push_back(shard.key);
      forget(checkpoint_.store, keys);
    } else {
      try {
        committed = checkpoint_.commit(slot.save.id, manifest);
      } catch (const std::exception& error) {
        failure = to_message(failure_of(error, 0));
      }
    }
    const std::lock_guard lock(slot.mutex);
    --slot.tasks;
    if (slot.cancelled) return;
    slot.committed = committed;
    slot.failure = failure;
    slot.ended = true;
  });
}

std::int64_t BackgroundSaves::word_of(SaveSlot& slot) {
  const std::chrono::nanoseconds limit = checkpoint_.options.silence_timeout;
  const bool silent = worker_.is_silent_for(limit);
  const std::lock_guard lock(slot.mutex);
  if (slot.stage == Stage::free) {
    if (slot.tasks == 0) return kNothing;
    return silent ? kFailed : kWorking;
  }
  if (!slot.failure.empty()) return kFailed;
  if (slot.ended) return kDone;
  if (!silent) return kWorking;
  const double seconds = std::chrono::duration<double>(limit).count();
  const std::string object = slot.stage == Stage::writing
                                 ? "shard " + shard_key(slot.save.id, slot.head.writer)
                                 : "manifest " + manifest_key(slot.save.id) + " and COMMIT";
  slot.failure = to_message({.rank = checkpoint_.world.rank(),
                             .what = "no answer from store " + checkpoint_.store.uri() + " for " +
                                     std::to_string(static_cast<std::int64_t>(seconds)) +
                                     " s while writing " + object,
                             .hint = "check the store; timeout.collective is the limit"});
  slot.cancelled = true;
  return kFailed;
}

BackgroundSaves::Words BackgroundSaves::exchange() {
  Communicator& world = checkpoint_.world;
  const Tensor mine(Device{}, {2}, DType::i64);
  const Tensor all(Device{}, {std::int64_t{2} * world.size()}, DType::i64);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    mine.as<std::int64_t>()[i] = word_of(*slots_[i]);
  }
  world.all_gather(mine, all).wait();
  Words words(static_cast<std::size_t>(world.size()));
  const std::int64_t* next = all.as<std::int64_t>();
  for (auto& of_rank : words) {
    for (std::int64_t& word : of_rank) word = *next++;
  }
  return words;
}

std::vector<SaveEnd> BackgroundSaves::poll() {
  return in_flight() == 0 ? std::vector<SaveEnd>() : advance(exchange());
}

std::vector<SaveEnd> BackgroundSaves::drain() {
  std::vector<SaveEnd> ends;
  while (true) {
    const Words words = exchange();
    std::vector<SaveEnd> news = advance(words);
    // What was given up just now still has to be taken away.
    bool more = in_flight() > 0 || !news.empty();
    for (const auto& of_rank : words)
      more = more || of_rank[0] == kWorking || of_rank[1] == kWorking;
    std::move(news.begin(), news.end(), std::back_inserter(ends));
    if (!more) return ends;
    worker_.wait_idle(kDrainPause);
  }
}

std::vector<SaveEnd> BackgroundSaves::advance(const Words& words) {
  Communicator& world = checkpoint_.world;
  std::vector<SaveEnd> ends;
  const std::size_t oldest = slots_[0]->order < slots_[1]->order ? 0 : 1;
  bool is_first = true;  // commits are made in the order of the saves
  for (const std::size_t i : {oldest, 1 - oldest}) {
    SaveSlot& slot = *slots_[i];
    if (slot.stage == Stage::free) continue;
    const auto says = [i](std::int64_t word) {
      return [i, word](const auto& of_rank) { return of_rank[i] == word; };
    };
    if (slot.stage == Stage::writing) {
      if (std::any_of(words.begin(), words.end(), says(kFailed))) {
        std::string mine;
        {
          const std::lock_guard lock(slot.mutex);
          mine = slot.failure;
        }
        const std::vector<std::string> failures = gather_text(world, mine);
        ends.push_back(
            give_up(slot, *std::find_if(failures.begin(), failures.end(),
                                        [](const auto& text) { return !text.empty(); })));
        continue;
      }
      if (is_first && std::all_of(words.begin(), words.end(), says(kDone))) {
        commit(slot, gather_text(world, to_message(*slot.shard)));
      }
    } else if (words[0][i] != kWorking) {
      std::string text;
      if (checkpoint_.is_root()) {
        const std::lock_guard lock(slot.mutex);
        text = slot.failure.empty() ? "+" + slot.committed : "-" + slot.failure;
      }
      text = broadcast_text(world, text, 0);
      if (text[0] == '-') {
        ends.push_back(give_up(slot, text.substr(1)));
      } else {
        SaveResult saved = save_result_from(text.substr(1));
        std::move(remarks_.begin(), remarks_.end(), std::back_inserter(saved.warnings));
        remarks_.clear();
        ends.push_back({.step = slot.save.id.step, .saved = std::move(saved), .failure = {}});
        slot.stage = Stage::free;
      }
      continue;
    }
    is_first = false;
  }
  leave_nothing_if_fenced(ends);
  return ends;
}

void BackgroundSaves::leave_nothing_if_fenced(std::vector<SaveEnd>& ends) {
  const auto fenced = std::find_if(ends.begin(), ends.end(), [](const SaveEnd& end) {
    return end.failure && end.failure->outcome == Outcome::fenced;
  });
  if (fenced == ends.end()) return;
  const std::string why = to_message(*fenced->failure);
  for (const auto& slot : slots_) {
    if (slot->stage != Stage::free) ends.push_back(give_up(*slot, why));
  }
  // What stays is swept by a later launch, but it may be large.
  worker_.wait_idle(kFencedPause);
}

std::string BackgroundSaves::fenced_by() {
  if (!worker_.idle()) return {};
  const auto found = std::make_shared<std::string>();
  worker_.post([this, found] {
    try {
      checkpoint_.job->check_unclaimed();
    } catch (const FencedError& error) {
      *found = error.what();
    } catch (const std::exception&) {
      return;  // the store does not say
    }
  });
  worker_.wait_idle(kFencedPause);
  return worker_.idle() ? *found : std::string();
}

SaveEnd BackgroundSaves::give_up(SaveSlot& slot, const std::string& failure) {
  bool has_shard = false;
  {
    const std::lock_guard lock(slot.mutex);
    slot.cancelled = true;
    // In a commit that failed the shards are rank 0's to keep or to remove.
    has_shard = slot.stage == Stage::writing && slot.ended && slot.shard;
    if (has_shard) ++slot.tasks;
  }
  if (has_shard) {
    worker_.post_first([this, &slot] {
      forget(checkpoint_.store, {slot.shard->key});
      const std::lock_guard lock(slot.mutex);
      --slot.tasks;
    });
  }
  slot.stage = Stage::free;
  return {.step = slot.save.id.step, .saved = {}, .failure = save_failure_from(failure)};
}

}  // namespace lockstep
