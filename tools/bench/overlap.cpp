// SPDX-License-Identifier: Apache-2.0
// How much of the communication hides behind the backward pass: steps with overlap, without it, and
// without communication, in turns; what communication takes of the cores; and what waiting does.
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "lockstep/collectives/agree.h"
#include "tools/bench/bench.h"
#include "tools/bench/random_token_job.h"

namespace lockstep::tools {
namespace {

enum Variant : std::size_t { on, off, alone };

// Of all threads of this process so far.
double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double sum_of_ranks(ProcessGroup& group, double mine) {
  const Tensor value(Device{}, {1}, DType::f64);
  *value.as<double>() = mine;
  group.world().all_reduce(value, ReduceOp::sum).wait();
  return *value.as<double>();
}

// Steps of all ranks but the last, which need no communication, while an operation waits for that
// rank or while none does. Seconds a step, of the slowest of them; zero on the last rank.
double steps_beside(ProcessGroup& group, RandomTokenJob& job, std::int64_t steps, double expected,
                    bool waiting) {
  using Seconds = std::chrono::duration<double>;
  const Tensor small = Tensor::zeros(Device{}, {16}, DType::f32);
  group.world().barrier().wait();
  const auto began = std::chrono::steady_clock::now();
  double mine = 0.0;
  Work late = waiting && group.rank() + 1 < group.size()
                  ? group.world().all_reduce(small, ReduceOp::sum)
                  : Work({}, 0);
  if (group.rank() + 1 < group.size()) {
    for (std::int64_t i = 0; i < steps; ++i) job.step();
    mine = Seconds(std::chrono::steady_clock::now() - began).count() / static_cast<double>(steps);
    if (!waiting) late = group.world().all_reduce(small, ReduceOp::sum);
  } else {
    std::this_thread::sleep_for(Seconds(1.5 * expected * static_cast<double>(steps)));
    late = group.world().all_reduce(small, ReduceOp::sum);
  }
  if (late.done() && waiting && group.rank() + 1 < group.size()) {
    mine = std::numeric_limits<double>::infinity();  // the steps outlasted the wait
  }
  late.wait();
  const Tensor slowest(Device{}, {1}, DType::f64);
  *slowest.as<double>() = mine;
  group.world().all_reduce(slowest, ReduceOp::max).wait();
  return *slowest.as<double>();
}

// One step with overlap and one without, from the same weights: the same bits.
void check_same_bits(ProcessGroup& group, const TrainOptions& train) {
  std::array<std::string, 2> weights;
  for (const Variant variant : {on, off}) {
    RandomTokenJob job(train);
    ReducerOptions reducer = train.reducer;
    reducer.overlap = variant == on;
    job.use(group.world(), reducer, train.leaves());
    job.step();
    weights[variant] = job.weights();
  }
  agree(group.world(), "compare the bits with and without overlap", [&] {
    if (weights[on] == weights[off]) return;
    throw NumericError("overlap changes the bits of a step",
                       "this is a fault of the reducer: report it");
  });
}

void run(ProcessGroup& group, const BenchOptions& options) {
  const TrainOptions& train = *options.train;
  agree(group.world(), "compare the variants", [&] {
    if (train.leaves() % group.size() == 0) return;
    throw ConfigError("batch.global / batch.micro = " + std::to_string(train.leaves()) +
                          " leaves over " + std::to_string(group.size()) + " ranks",
                      "give every rank the same number of leaves, so that the variants compare");
  });
  if (train.reducer.reduction != Reduction::fast) check_same_bits(group, train);
  RandomTokenJob job(train);
  const std::unique_ptr<Communicator> alone_group = group.split("alone", group.rank(), 0);
  std::array<std::vector<double>, 3> seconds;
  std::array<double, 3> cpu{};
  std::vector<double> late_peer_ratios;
  for (std::int64_t round = 0; round < options.own.integer("rounds"); ++round) {
    for (const Variant variant : {on, off, alone}) {
      ReducerOptions reducer = train.reducer;
      reducer.overlap = variant != off;
      job.use(variant == alone ? *alone_group : group.world(), reducer,
              variant == alone ? train.leaves() / group.size() : train.leaves());
      job.step();
      const double before = cpu_seconds();
      for (std::int64_t i = 0; i < options.own.integer("repeats"); ++i) {
        seconds[variant].push_back(timed(group, [&] { job.step(); }));
      }
      cpu[variant] += cpu_seconds() - before;
    }
    const double expected = median(seconds[alone]);
    const double idle = steps_beside(group, job, options.own.integer("repeats"), expected, false);
    const double beside = steps_beside(group, job, options.own.integer("repeats"), expected, true);
    if (std::isfinite(beside)) late_peer_ratios.push_back(beside / idle);
  }
  job.release();
  const double on_s = median(seconds[on]);
  const double off_s = median(seconds[off]);
  const double alone_s = median(seconds[alone]);
  nlohmann::ordered_json line = {{"rounds", options.own.integer("rounds")},
                                 {"repeats", options.own.integer("repeats")}};
  add_spread(line, "overlap_s", seconds[on]);
  add_spread(line, "no_overlap_s", seconds[off]);
  add_spread(line, "compute_s", seconds[alone]);
  line["communication_s"] = off_s - alone_s;
  // Null where steps with and without communication take times that overlap: nothing to hide.
  const auto steps = static_cast<double>(seconds[on].size());
  line["communication_cpu_s"] = sum_of_ranks(group, (cpu[on] - cpu[alone]) / steps);
  // Time of a step while an operation waits for the last rank, over that of one with none.
  if (!late_peer_ratios.empty()) add_spread(line, "late_peer_ratio", late_peer_ratios);
  const bool clear = line["no_overlap_s_p10"].get<double>() > line["compute_s_p90"].get<double>();
  line["hidden"] = nullptr;
  if (clear) line["hidden"] = (off_s - on_s) / (off_s - alone_s);
  line["checked"] = train.reducer.reduction != Reduction::fast;
  print_line(group, "overlap", line);
}

}  // namespace

Bench bench_overlap() {
  return {.name = "overlap",
          .help = "share of the communication that hides behind the backward pass",
          .keys = {{.name = "rounds",
                    .type = ConfigType::integer,
                    .default_value = "5",
                    .help = "turns of: with overlap, without, without communication",
                    .min = 1},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "3",
                    .help = "timed steps a turn",
                    .min = 1}},
          .trains = true,
          .run = run};
}

}  // namespace lockstep::tools
