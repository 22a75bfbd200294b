// SPDX-License-Identifier: Apache-2.0
// All-reduce where gradients lie: in memory of the group, in place.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

// Small integers, so that every order of additions gives the same float.
float value_of(std::int64_t i, int rank) { return static_cast<float>((i % 97) + rank); }

Work reduce(Communicator& world, const Tensor& arena, const std::shared_ptr<SumPlan>& plan) {
  if (!plan) return world.all_reduce(arena, ReduceOp::sum);
  return world.reduce_parts({arena}, arena, plan);
}

void check(ProcessGroup& group, const Tensor& arena, const std::shared_ptr<SumPlan>& plan) {
  float* values = arena.as<float>();
  for (std::int64_t i = 0; i < arena.size(); ++i) values[i] = value_of(i, group.rank());
  reduce(group.world(), arena, plan).wait();
  for (std::int64_t i = 0; i < arena.size(); ++i) {
    float sum = 0.0F;
    for (int rank = 0; rank < group.size(); ++rank) sum += value_of(i, rank);
    if (values[i] == sum) continue;
    throw NumericError("rank " + std::to_string(group.rank()) + ": element " + std::to_string(i) +
                           " of " + std::to_string(arena.size()) + " is " +
                           std::to_string(values[i]) + ", not " + std::to_string(sum),
                       "this is a fault of the communicator: report it");
  }
  // Zeros stay zero, however often they are added.
  std::fill_n(values, arena.size(), 0.0F);
}

void run(ProcessGroup& group, const BenchOptions& options) {
  const std::int64_t smallest = options.own.integer("min_bytes");
  const std::int64_t largest = std::max(smallest, options.own.integer("max_bytes"));
  const auto repeats = options.own.integer("repeats");
  const double share = 2.0 * (group.size() - 1) / group.size();
  std::shared_ptr<SumPlan> plan;
  if (options.own.text("reduction") == "ordered") {
    plan = std::make_shared<SumPlan>(ordered_plan(group.size()));
  }
  const Tensor memory = group.world().allocate(largest / 4, DType::f32);
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 4) {
    const Tensor arena = memory.rows(0, bytes / 4);
    check(group, arena, plan);
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < repeats; ++i) {
      seconds.push_back(timed(group, [&] { reduce(group.world(), arena, plan).wait(); }));
    }
    nlohmann::ordered_json line = {{"bytes", bytes}, {"repeats", repeats}};
    add_spread(line, "seconds", seconds);
    line["bus_gb_per_s"] = share * static_cast<double>(bytes) / median(seconds) / 1e9;
    line["checked"] = true;
    print_line(group, "allreduce", line);
  }
}

}  // namespace

Bench bench_allreduce() {
  return {.name = "allreduce",
          .help = "sum of f32 over the ranks, in place, by size",
          .keys = {{.name = "min_bytes",
                    .type = ConfigType::integer,
                    .default_value = "4096",
                    .help = "first size; each is four times the one before",
                    .min = 4},
                   {.name = "max_bytes",
                    .type = ConfigType::integer,
                    .default_value = "67108864",
                    .help = "last size",
                    .min = 4},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "20",
                    .help = "timed operations a size",
                    .min = 1},
                   {.name = "reduction",
                    .default_value = "ordered",
                    .help = "ordered or fast",
                    .choices = {"ordered", "fast"}}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
