// SPDX-License-Identifier: Apache-2.0
// All-reduce where gradients lie: in memory of the group, in place.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/prepared_reduction.h"
#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

// Small integers, so that every order of additions gives the same float.
float value_of(std::int64_t i, int rank) { return static_cast<float>((i % 97) + rank); }

// Small operations are timed in a row: one alone takes less than the ranks need to begin together.
std::int64_t calls_together(std::int64_t bytes) { return bytes < 65536 ? 50 : 1; }

// A sum of one size: prepared as gradients' are where the order is stated, else all_reduce.
struct Sum {
  Communicator& world;
  Tensor arena;
  std::optional<PreparedReduction> prepared;

  void operator()() {
    (prepared ? prepared->start() : world.all_reduce(arena, ReduceOp::sum)).wait();
  }
};

Sum sum_of(Communicator& world, std::int64_t elements, bool is_ordered) {
  Sum sum{world, world.allocate(elements, DType::f32), {}};
  if (is_ordered) {
    const auto plan = std::make_shared<SumPlan>(ordered_plan(world.size()));
    sum.prepared.emplace(world.prepare_reduce_parts({sum.arena}, sum.arena, plan));
  }
  return sum;
}

[[noreturn]] void refuse(ProcessGroup& group, std::int64_t i, std::int64_t size, float is,
                         float wanted) {
  throw NumericError("rank " + std::to_string(group.rank()) + ": element " + std::to_string(i) +
                         " of " + std::to_string(size) + " is " + std::to_string(is) + ", not " +
                         std::to_string(wanted),
                     "this is a fault of the communicator: report it");
}

void check(ProcessGroup& group, Sum& sum_up) {
  const Tensor& arena = sum_up.arena;
  float* values = arena.as<float>();
  for (std::int64_t i = 0; i < arena.size(); ++i) values[i] = value_of(i, group.rank());
  sum_up();
  for (std::int64_t i = 0; i < arena.size(); ++i) {
    float sum = 0.0F;
    for (int rank = 0; rank < group.size(); ++rank) sum += value_of(i, rank);
    if (values[i] != sum) refuse(group, i, arena.size(), values[i], sum);
  }
}

// Ones, and on the last rank what makes the sum zero: it stays zero, however often it is added.
float cancelling(ProcessGroup& group) {
  return group.rank() + 1 < group.size() ? 1.0F : static_cast<float>(1 - group.size());
}

std::vector<double> sample(ProcessGroup& group, Sum& sum_up, std::int64_t repeats) {
  const Tensor& arena = sum_up.arena;
  const std::int64_t calls = calls_together(4 * arena.size());
  float* values = arena.as<float>();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i <= repeats; ++i) {
    std::fill_n(values, arena.size(), cancelling(group));
    const double time = timed(group, [&] {
      for (std::int64_t call = 0; call < calls; ++call) sum_up();
    });
    if (i > 0) seconds.push_back(time / static_cast<double>(calls));
    const float* wrong =
        std::find_if(values, values + arena.size(), [](float value) { return value != 0.0F; });
    if (wrong != values + arena.size()) refuse(group, wrong - values, arena.size(), *wrong, 0.0F);
  }
  return seconds;
}

// The bytes of `word`, at least one element.
std::int64_t size_of(const std::string& word) {
  std::int64_t bytes = 0;
  const char* end = word.data() + word.size();
  const auto [stop, code] = std::from_chars(word.data(), end, bytes);
  if (code != std::errc{} || stop != end || bytes < 4 || bytes % 4 != 0) {
    throw ConfigError("allreduce: \"" + word + "\" is not a size",
                      "give bytes, a multiple of 4: --sizes 4096,65536");
  }
  return bytes;
}

// Sizes one by one: of a list, or as rank 0 reads them.
class Sizes {
 public:
  Sizes(ProcessGroup& group, const std::string& list) : group_(group), asks_(list == "-") {
    if (asks_) return;
    agree(group.world(), "read the sizes", [&] {
      std::istringstream words(list);
      for (std::string word; std::getline(words, word, ',');) listed_.push_back(size_of(word));
    });
  }

  std::optional<std::int64_t> next() {
    if (asks_) {
      std::string line;
      if (group_.rank() == 0) std::getline(std::cin, line);
      line = broadcast_text(group_.world(), line, 0);
      if (line.empty()) return std::nullopt;
      agree(group_.world(), "read a size", [&] { listed_.push_back(size_of(line)); });
    }
    return at_ < listed_.size() ? std::optional(listed_[at_++]) : std::nullopt;
  }

 private:
  ProcessGroup& group_;
  bool asks_;
  std::vector<std::int64_t> listed_;
  std::size_t at_ = 0;
};

void run(ProcessGroup& group, const BenchOptions& options) {
  const auto repeats = options.own.integer("repeats");
  const double share = 2.0 * (group.size() - 1) / group.size();
  const bool is_ordered = options.own.text("reduction") == "ordered";
  std::map<std::int64_t, Sum> sums;
  Sizes sizes(group, options.own.text("sizes"));
  while (const auto bytes = sizes.next()) {
    if (!sums.contains(*bytes)) {
      sums.emplace(*bytes, sum_of(group.world(), *bytes / 4, is_ordered));
      check(group, sums.at(*bytes));
    }
    const std::vector<double> seconds = sample(group, sums.at(*bytes), repeats);
    nlohmann::ordered_json line = {
        {"bytes", *bytes}, {"repeats", repeats}, {"calls", calls_together(*bytes)}};
    add_spread(line, "seconds", seconds);
    line["bus_gb_per_s"] = share * static_cast<double>(*bytes) / median(seconds) / 1e9;
    line["checked"] = true;
    print_line(group, "allreduce", line);
  }
}

}  // namespace

Bench bench_allreduce() {
  return {.name = "allreduce",
          .help = "sum of f32 over the ranks, in place, by size",
          .keys = {{.name = "sizes",
                    .default_value = "4096,65536,1048576,4194304,26214400,67108864",
                    .help = "bytes, comma-separated; - reads them from stdin, a line each, and "
                            "answers each at once"},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "20",
                    .help = "timed refills a size; below 64 KiB 50 operations each, else one",
                    .min = 1},
                   {.name = "reduction",
                    .default_value = "ordered",
                    .help = "ordered or fast",
                    .choices = {"ordered", "fast"}}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
