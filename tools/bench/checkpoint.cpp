// SPDX-License-Identifier: Apache-2.0
// Saving and loading a state of a given size, and what a background save costs training.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/rng.h"
#include "lockstep/runtime/checkpoint.h"
#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

// Seconds of the slowest rank, by repeat.
struct Times {
  std::vector<double> save;
  std::vector<double> load;
  std::vector<double> stall;       // until begin_save() returns
  std::vector<double> copy;        // of the bytes that begin_save() copies, by memcpy
  std::vector<double> background;  // until the commit of begin_save() is durable
};

// One tensor of numbers, and where it is saved.
class Subject {
 public:
  /// At most `saves` of them: none is retired while another is timed.
  Subject(ProcessGroup& group, ObjectStore& store, std::int64_t elements, std::uint64_t saves)
      : group_(group),
        store_(store),
        tensor_(Device{}, {elements}, DType::f32),
        checkpoints_(store, group.world(),
                     {.mesh = {.dp = static_cast<std::uint64_t>(group.size())}, .keep = saves}) {
    const auto size = static_cast<std::size_t>(elements);
    fill_normal({tensor_.as<float>(), size}, 0, 1, "state", 1.0);
    original_.assign(tensor_.as<float>(), tensor_.as<float>() + size);
    part_.resize(size / static_cast<std::size_t>(group.size()));
    state_.bind("state", StateKind::param, tensor_);
    checkpoints_.open({.model = {{.name = "state", .shape = {elements}}},
                       .code = {},
                       .resume = ResumePolicy::never});
  }

  void save_and_load(Times& times) {
    ++scalars_.step;
    remove_shards();
    times.save.push_back(timed(group_, [&] { checkpoints_.save(scalars_, state_); }));
    load(times);
  }

  void save_in_background(Times& times) {
    ++scalars_.step;
    remove_shards();
    times.copy.push_back(timed(group_, [&] {
      std::memcpy(part_.data(), tensor_.as<float>(), part_.size() * sizeof(float));
    }));
    bool begun = false;
    std::vector<SaveEnd> ends;
    times.background.push_back(timed(group_, [&] {
      times.stall.push_back(
          timed(group_, [&] { begun = checkpoints_.begin_save(scalars_, state_); }));
      ends = checkpoints_.drain();
    }));
    agree(group_.world(), "end the background save", [&] {
      for (const SaveEnd& end : ends) {
        if (end.failure) throw StorageError(end.failure->what, end.failure->hint);
      }
      if (begun && ends.size() == 1) return;
      throw StorageError("checkpoint: no slot for a background save", "report it");
    });
  }

  /// What is read must be what was saved.
  void load(Times& times) {
    std::fill_n(tensor_.as<float>(), tensor_.size(), 0.0F);
    times.load.push_back(timed(group_, [&] { checkpoints_.load(state_); }));
    agree(group_.world(), "compare what was loaded", [&] {
      if (std::equal(original_.begin(), original_.end(), tensor_.as<float>())) return;
      throw DataError("what was loaded is not what was saved", "report it");
    });
  }

 private:
  // The disk may give their space to the next save: space used before is faster on many.
  void remove_shards() {
    agree(group_.world(), "remove the last save", [&] {
      if (group_.rank() != 0) return;
      for (const ObjectInfo& shard : store_.list("s/")) store_.remove(shard.key);
    });
  }

  ProcessGroup& group_;
  ObjectStore& store_;
  Tensor tensor_;
  std::vector<float> original_;
  std::vector<float> part_;  // this rank's share of the tensor is so large
  StateDict state_;
  TrainState scalars_;
  Checkpointer checkpoints_;
};

void run(ProcessGroup& group, const BenchOptions& options) {
  const std::int64_t elements = options.own.integer("bytes") / 4;
  const auto repeats = options.own.integer("repeats");
  std::unique_ptr<ObjectStore> store;
  agree(group.world(), "open the store",
        [&] { store = ObjectStore::open(options.own.text("store")); });
  Subject subject(group, *store, elements, 2 * static_cast<std::uint64_t>(repeats) + 2);

  Times times;
  Times first;  // on space of the disk that nobody has written to
  subject.save_and_load(first);
  for (std::int64_t i = 0; i < repeats; ++i) subject.save_and_load(times);
  subject.save_in_background(first);  // allocates the slot
  for (std::int64_t i = 0; i < repeats; ++i) subject.save_in_background(times);
  subject.load(first);

  const auto megabytes = static_cast<double>(elements) * 4e-6;
  nlohmann::ordered_json line = {
      {"bytes", elements * 4}, {"store", options.own.text("store")}, {"repeats", repeats}};
  add_spread(line, "save_s", times.save);
  add_spread(line, "load_s", times.load);
  add_spread(line, "stall_s", times.stall);
  add_spread(line, "copy_s", times.copy);
  add_spread(line, "background_s", times.background);
  line["save_mb_per_s"] = megabytes / median(times.save);
  line["load_mb_per_s"] = megabytes / median(times.load);
  line["checked"] = true;
  print_line(group, "checkpoint", line);
}

}  // namespace

Bench bench_checkpoint() {
  return {.name = "checkpoint",
          .help = "durable saves, checked loads, and how long a background save stops training",
          .keys = {{.name = "bytes",
                    .type = ConfigType::integer,
                    .default_value = "268435456",
                    .help = "of the state, over all ranks",
                    .min = 4096},
                   {.name = "store",
                    .default_value = "file:bench-checkpoint",
                    .help = "a place without commits; the last save stays there"},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "5",
                    .help = "saves and loads, then background saves",
                    .min = 1}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
