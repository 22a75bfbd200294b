// SPDX-License-Identifier: Apache-2.0
// A training step without data, logs and checkpoints, and where its time goes.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/handshake.h"
#include "tools/bench/bench.h"
#include "tools/bench/random_token_job.h"

namespace lockstep::tools {
namespace {

void run(ProcessGroup& group, const BenchOptions& options) {
  TrainOptions train = *options.train;
  if (train.device_of_rank) train.device.index = group.local_rank();
  agree(group.world(), "open the device", [&] { require_device(train.device); });
  const auto data = group.split("data", 0, group.rank(), Lane::data, train.device);
  RandomTokenJob job(train);
  job.use(*data, train.reducer, train.leaves());
  for (int warm_up = 0; warm_up < 2; ++warm_up) job.step();
  std::vector<double> seconds;
  std::vector<double> passes;
  std::vector<double> exposed;
  std::vector<double> optimizer;
  for (std::int64_t i = 0; i < options.own.integer("repeats"); ++i) {
    StepTimes times;
    seconds.push_back(timed(group, [&] { times = job.step(); }));
    passes.push_back(times.passes);
    exposed.push_back(times.exposed);
    optimizer.push_back(times.optimizer);
  }
  // Replicas that have drifted apart are refused, both ranks named.
  handshake(group.world(), std::array{HandshakeField{"weights", job.weights()}});
  const std::int64_t tokens = train.global_batch * train.model.context;
  std::int64_t parameters = 0;
  for (const Parameter* parameter : job.parameters()) parameters += parameter->size();
  nlohmann::ordered_json line = {
      {"parameters", parameters}, {"tokens", tokens}, {"repeats", options.own.integer("repeats")}};
  add_spread(line, "seconds", seconds);
  line["tokens_per_s"] = static_cast<double>(tokens) / median(seconds);
  line["passes_s"] = median(passes);
  line["comm_exposed_s"] = median(exposed);
  line["optimizer_s"] = median(optimizer);
  line["arenas"] = job.reducer().arenas();
  line["arena_bytes"] = 4 * job.reducer().plan().arena_elements;
  const Tensor bytes(Device{}, {1}, DType::i64);
  *bytes.as<std::int64_t>() = job.optimizer_bytes();
  const Tensor bytes_of_rank(Device{}, {group.size()}, DType::i64);
  group.world().all_gather(bytes, bytes_of_rank).wait();
  line["optimizer_bytes"] = std::vector<std::int64_t>(
      bytes_of_rank.as<std::int64_t>(), bytes_of_rank.as<std::int64_t>() + group.size());
  line["backend"] = data->backend_name();
  line["device"] = to_string(train.device);
  if (train.device.kind == DeviceKind::cuda) line["device_bytes"] = memory_of(train.device).used;
  line["loss"] = job.loss();
  line["checked"] = true;
  print_line(group, "step", line);
}

}  // namespace

Bench bench_step() {
  return {.name = "step",
          .help = "a training step over random tokens, and where its time goes",
          .keys = {{.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "10",
                    .help = "timed steps",
                    .min = 1}},
          .trains = true,
          .run = run};
}

}  // namespace lockstep::tools
