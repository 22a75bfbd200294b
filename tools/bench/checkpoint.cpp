// SPDX-License-Identifier: Apache-2.0
// Saving and loading a state of a given size.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/rng.h"
#include "lockstep/runtime/checkpoint.h"
#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

void run(ProcessGroup& group, const BenchOptions& options) {
  const std::int64_t elements = options.own.integer("bytes") / 4;
  const Tensor tensor(Device{}, {elements}, DType::f32);
  fill_normal({tensor.as<float>(), static_cast<std::size_t>(elements)}, 0, 1, "state", 1.0);
  const std::vector<float> original(tensor.as<float>(), tensor.as<float>() + elements);
  StateDict state;
  state.bind("state", StateKind::param, tensor);

  std::unique_ptr<ObjectStore> store;
  agree(group.world(), "open the store",
        [&] { store = ObjectStore::open(options.own.text("store")); });
  Checkpointer checkpoints(*store, group.world(),
                           {.mesh = {.dp = static_cast<std::uint64_t>(group.size())}, .keep = 1});
  checkpoints.open({.model = {{.name = "state", .shape = {elements}}},
                    .code = {},
                    .resume = ResumePolicy::never});
  std::vector<double> save_seconds;
  std::vector<double> load_seconds;
  TrainState scalars;
  for (std::int64_t i = 0; i < options.own.integer("repeats"); ++i) {
    ++scalars.step;
    save_seconds.push_back(timed(group, [&] { checkpoints.save(scalars, state); }));
    std::fill_n(tensor.as<float>(), elements, 0.0F);
    load_seconds.push_back(timed(group, [&] { checkpoints.load(state); }));
    agree(group.world(), "compare what was loaded", [&] {
      if (std::equal(original.begin(), original.end(), tensor.as<float>())) return;
      throw DataError("what was loaded is not what was saved", "report it");
    });
  }
  const auto megabytes = static_cast<double>(elements) * 4e-6;
  nlohmann::ordered_json line = {{"bytes", elements * 4},
                                 {"store", options.own.text("store")},
                                 {"repeats", options.own.integer("repeats")}};
  add_spread(line, "save_s", save_seconds);
  add_spread(line, "load_s", load_seconds);
  line["save_mb_per_s"] = megabytes / median(save_seconds);
  line["load_mb_per_s"] = megabytes / median(load_seconds);
  line["checked"] = true;
  print_line(group, "checkpoint", line);
}

}  // namespace

Bench bench_checkpoint() {
  return {.name = "checkpoint",
          .help = "durable saves and checked loads of one tensor",
          .keys = {{.name = "bytes",
                    .type = ConfigType::integer,
                    .default_value = "268435456",
                    .help = "of the state, over all ranks",
                    .min = 4096},
                   {.name = "store",
                    .default_value = "file:bench-checkpoint",
                    .help = "a place without commits; it is not cleaned up"},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "5",
                    .help = "saves and loads",
                    .min = 1}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
