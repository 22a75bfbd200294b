// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/run_job.h"
#include "lockstep/core/error.h"

namespace lockstep::tools {
namespace {

std::vector<Bench> benches() {
  return {bench_allreduce(), bench_checkpoint(), bench_gemm(),
          bench_overlap(),   bench_step(),       bench_store()};
}

void print_help() {
  std::puts(
      "usage: [mpirun -n N] lockstep bench NAME [--key value …]\n\nLines of JSON; results are "
      "checked, and times are those of the slowest rank.\n");
  for (const Bench& bench : benches()) {
    std::printf("  %-11s %s\n", bench.name, bench.help);
    for (const ConfigKey& key : bench.keys) {
      std::printf("      --%-16s %s [%s]\n", key.name.c_str(), key.help.c_str(),
                  key.default_value.c_str());
    }
    if (bench.trains) std::puts("      and the keys of `lockstep train`");
  }
}

Bench find_bench(const Arguments& arguments) {
  if (arguments.empty()) throw ConfigError("bench: no name", "see lockstep bench --help");
  std::vector<std::string> names;
  for (const Bench& bench : benches()) {
    if (arguments[0] == bench.name) return bench;
    names.emplace_back(bench.name);
  }
  const auto near = nearest(arguments[0], names);
  throw ConfigError("bench \"" + arguments[0] + "\" is unknown",
                    near ? "did you mean " + *near + "?" : "see lockstep bench --help");
}

bool is_own(const Bench& bench, const std::string& word) {
  return std::any_of(bench.keys.begin(), bench.keys.end(), [&](const ConfigKey& key) {
    return word == "--" + key.name || word.starts_with("--" + key.name + "=");
  });
}

BenchOptions read_options(const Bench& bench, const Arguments& arguments) {
  Arguments own;
  Arguments rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Arguments& into = !bench.trains || is_own(bench, arguments[i]) ? own : rest;
    into.push_back(arguments[i]);
    const bool value_follows = arguments[i].starts_with("--") &&
                               arguments[i].find('=') == std::string::npos &&
                               i + 1 < arguments.size();
    if (value_follows) into.push_back(arguments[++i]);
  }
  BenchOptions options{.own = Config(bench.keys), .train = {}};
  options.own.read_arguments(own);
  if (bench.trains) {
    // No data is read: a step over random tokens of the model's vocabulary.
    if (std::none_of(rest.begin(), rest.end(),
                     [](const std::string& word) { return word.starts_with("--data.source"); })) {
      rest.insert(rest.end(), {"--data.source", "text:."});
    }
    options.train = train_options(read_train_config(rest));
  }
  return options;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "--help") {
    if (launch_place().rank == 0) print_help();
    return 0;
  }
  // What is wrong with the words is wrong on every rank, and is said by one.
  std::optional<Bench> bench;
  BenchOptions options{.own = Config({}), .train = {}};
  std::exception_ptr fault;
  try {
    bench = find_bench(arguments);
    options = read_options(*bench, {arguments.begin() + 1, arguments.end()});
  } catch (const Error&) {
    fault = std::current_exception();
  }
  run_job(options.train ? options.train->group : GroupOptions{}, [&](ProcessGroup& group) {
    agree(group.world(), "read the options", [&] {
      if (fault) std::rethrow_exception(fault);
    });
    bench->run(group, options);
    return Outcome::finished;
  });
}

double timed(ProcessGroup& group, const std::function<void()>& work) {
  group.world().barrier().wait();
  const auto began = std::chrono::steady_clock::now();
  work();
  const Tensor seconds(Device{}, {1}, DType::f64);
  *seconds.as<double>() =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  group.world().all_reduce(seconds, ReduceOp::max).wait();
  return *seconds.as<double>();
}

namespace {

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

void add_spread(nlohmann::ordered_json& line, const std::string& name,
                std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  line[name] = quantile(samples, 0.5);
  line[name + "_p10"] = quantile(samples, 0.1);
  line[name + "_p90"] = quantile(samples, 0.9);
}

void print_line(ProcessGroup& group, const char* bench, const nlohmann::ordered_json& line) {
  if (group.rank() != 0) return;
  nlohmann::ordered_json all = {
      {"bench", bench}, {"ranks", group.size()}, {"backend", group.world().backend_name()}};
  all.update(line);
  std::printf("%s\n", all.dump().c_str());
  std::fflush(stdout);
}

}  // namespace lockstep::tools
