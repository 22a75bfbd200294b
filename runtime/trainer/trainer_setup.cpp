// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/available_memory.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/handshake.h"
#include "lockstep/core/ledger.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "runtime/trainer/replicas.h"
#include "runtime/trainer/trainer_state.h"

namespace lockstep {
namespace {

std::string table_of(const Parameters& parameters) {
  std::string table;
  for (const Parameter* parameter : parameters) {
    table += parameter->name() + " " + to_string(parameter->shape()) + "\n";
  }
  return table;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                 const Parameters& parameters,
                                                 const BucketPlan& plan, optim::Shards* shards) {
  const optim::ParameterSlices slices = shards ? shards->slices() : parameters;
  if (options.optimizer == "sgd") return std::make_unique<optim::Sgd>(slices, options.sgd);
  if (options.optimizer == "lamb") {
    return std::make_unique<optim::Lamb>(slices, plan, options.moments, shards);
  }
  return std::make_unique<optim::AdamW>(slices, options.moments,
                                        options.optimizer == "adam"
                                            ? optim::WeightDecay::in_gradient
                                            : optim::WeightDecay::decoupled);
}

std::int64_t optimizer_elements(const StateDict& state) {
  std::int64_t elements = 0;
  for (const StateEntry& entry : state.entries()) {
    if (entry.kind != StateKind::param) elements += entry.tensor.size();
  }
  return elements;
}

std::string megabytes(std::int64_t elements) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(elements) * 4e-6);
  return text;
}

// All ranks of a host copy their state at the same time.
std::function<std::optional<std::uint64_t>()> share_of_memory(const ProcessGroup& job) {
  const auto& hosts = job.hosts();
  const auto own = static_cast<std::size_t>(job.rank());
  const auto sharers = std::count(hosts.begin(), hosts.end(), hosts[own]);
  return [sharers]() -> std::optional<std::uint64_t> {
    const auto all = available_memory();
    if (!all) return std::nullopt;
    return *all / static_cast<std::uint64_t>(sharers);
  };
}

// With the device of this rank. Collective: throws on all ranks if one's is not there.
TrainOptions placed(TrainOptions options, ProcessGroup& job) {
  if (options.device_of_rank) options.device.index = job.local_rank();
  agree(job.world(), "open the device", [&] { require_device(options.device); });
  return options;
}

}  // namespace

Trainer::State::State(ProcessGroup& job, TrainOptions chosen, const Config& config,
                      SignalWatch* watch)
    : group(job),
      options(placed(std::move(chosen), job)),
      signals(watch),
      code(machine_code(options.device, options.precision)),
      told(keys_to_tell(config)),
      compute(options.device, "compute") {
  group.on_abort([files = files](const AbortCause& cause) { files->write(cause); });
  same_on_all([&] {
    mesh = std::make_unique<Mesh>(group, MeshShape{.data = options.mesh_data, .tensor = 1},
                                  options.device);
  });
  compare_options(config);
  code.merge(bit_options(options, mesh->data().size()));
  open_folder();
  read_data();
  build_model();
  open_checkpoints();
  load_or_start();
}

void Trainer::State::note(const std::string& text) {
  if (leads()) progress->note(text);
}

void Trainer::State::compare_options(const Config& config) {
  std::vector<HandshakeField> fields;
  for (const auto& [name, value] : code) {
    if (name != "cpu" && name != "gpu") fields.push_back({"build: " + name, value});
  }
  for (const auto& [name, value] : keys_to_match(config)) fields.push_back({name, value});
  same_on_all([&] { handshake(group.world(), fields); });
}

void Trainer::State::open_folder() {
  // Rank 0 first: it makes the folder, the others must see it.
  agree(group.world(), "open the run folder", [&] {
    if (leads()) {
      folder = std::make_shared<RunFolder>(options.run);
      folder->lock();
    }
  });
  agree(group.world(), "see the run folder", [&] {
    if (!leads()) folder = std::make_shared<RunFolder>(options.run);
  });
  files->open(folder, group.rank());
}

void Trainer::State::read_data() {
  agree(group.world(), "read the data",
        [&] { corpus = read_corpus(options.data_source, options.data_eval, options.model.vocab); });
  const std::array fields = {HandshakeField{"data fingerprint", corpus.fingerprint}};
  same_on_all([&] { handshake(group.world(), fields); });
  same_on_all([&] {
    samples =
        std::make_unique<SampleSequence>(corpus.train, options.model.context, options.global_batch,
                                         options.micro_batch, options.data_seed);
  });
  for (int slot = 0; slot < 2; ++slot) {
    slots.emplace_back(options.device, options.micro_batch, options.model.context);
  }
}

void Trainer::State::build_model() {
  agree(group.world(), "build the model", [&] {
    model = std::make_unique<nn::Gpt2>(compute, options.model, options.precision);
    loss = std::make_unique<nn::CrossEntropy>(
        compute, nn::CrossEntropyOptions{.vocabulary = 0, .smoothing = options.smoothing});
    parameters = model->parameters();
  });
  same_on_all([&] {
    reducer = std::make_unique<GradientReducer>(mesh->data(), compute, parameters, options.leaves(),
                                                options.reducer);
  });
  const BucketPlan& plan = reducer->plan();
  if (options.zero > 0) shards = std::make_unique<optim::Shards>(mesh->data(), parameters, plan);
  agree(group.world(), "make the optimizer",
        [&] { optimizer = make_optimizer(options, parameters, plan, shards.get()); });
  if (options.precision == DType::f16) {
    same_on_all([&] { scaler = std::make_unique<optim::LossScaler>(options.loss_scale); });
  }
  norm = std::make_unique<optim::GlobalNorm>(parameters, plan, shards.get());
  model->bind(state);
  optimizer->bind(state);
  const std::array fields = {HandshakeField{"parameter table", table_of(parameters)},
                             HandshakeField{"bucket plan", hash_of(plan)}};
  same_on_all([&] { handshake(group.world(), fields); });
}

void Trainer::State::open_checkpoints() {
  agree(group.world(), "open the store", [&] { store = ObjectStore::open(options.store); });
  checkpointer = std::make_unique<Checkpointer>(
      *store, group.world(),
      CheckpointOptions{.mesh = {.dp = static_cast<std::uint64_t>(mesh->shape().data),
                                 .zero = static_cast<std::uint64_t>(options.zero)},
                        .keep = static_cast<std::uint64_t>(options.checkpoint_keep),
                        .keep_best = static_cast<std::uint64_t>(options.checkpoint_keep_best),
                        .silence_timeout = options.group.collective_timeout,
                        .memory_left = share_of_memory(group)});
  const OpenResult opened =
      checkpointer->open({.model = tensors_of(parameters), .code = code, .resume = options.resume});
  attempt = static_cast<std::int64_t>(opened.attempt);
  files->set_attempt(attempt);
  begin_attempt();
  for (const std::string& warning : group.warnings()) note("NOTE " + warning);
  for (const std::string& warning : opened.warnings) note("NOTE " + warning);
}

void Trainer::State::begin_attempt() {
  std::shared_ptr<LedgerRing> ledger;
  agree(group.world(), "begin the attempt", [&] {
    if (!options.trace.empty()) trace = std::make_shared<Trace>(group.rank());
    const auto folder_of_ledgers = folder->path() / "ledger";
    std::error_code ignored;  // the ledger says what is wrong
    std::filesystem::create_directories(folder_of_ledgers, ignored);
    const std::string name = std::to_string(attempt) + "." + std::to_string(group.rank());
    ledger = std::make_shared<LedgerRing>((folder_of_ledgers / name).string(), group.rank(),
                                          group.size(), static_cast<int>(attempt));
    if (!leads()) return;
    folder->write_attempt(attempt, group.hosts(), group.process_ids());
    folder->write_result({.reason = "running", .attempt = attempt});
    log = std::make_unique<MetricsLog>(folder->path() / "metrics.jsonl");
  });
  if (options.device.kind == DeviceKind::cuda) {
    gpu = std::make_unique<GpuMonitor>(options.device, metrics);
  }
  if (leads()) {
    // mpirun and srun show a terminal to each rank, whatever they write to themselves.
    const bool terminal = group.launcher() == "none" && isatty(STDOUT_FILENO) == 1;
    progress = std::make_unique<Progress>(
        options.steps, terminal ? Progress::Style::in_place : Progress::Style::lines);
  }
  mesh->data().observe(ledger, trace);
}

void Trainer::State::check_resumed(const TrainState& saved) {
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw ConfigError("the checkpoint does not fit these options: " + what, hint);
  };
  if (saved.data.fingerprint != corpus.fingerprint) {
    refuse("its data is not that of data.source", "resume with the same files, or use a new run");
  }
  if (saved.seed != options.seed || saved.data.seed != options.data_seed) {
    refuse("seed " + std::to_string(saved.seed) + " and data.seed " +
               std::to_string(saved.data.seed) + " are not the ones given",
           "resume with the same seeds, or use a new run");
  }
  const auto leaves = static_cast<std::uint64_t>(options.leaves());
  const auto micro = static_cast<std::uint64_t>(options.micro_batch);
  if ((saved.leaves != leaves || saved.micro != micro)) {
    const std::string what = "V = " + std::to_string(saved.leaves) +
                             " leaves of batch.micro = " + std::to_string(saved.micro) + ", now " +
                             std::to_string(leaves) + " of " + std::to_string(micro);
    if (!options.allow_new_bits) {
      refuse(what,
             "keep batch.global and batch.micro, or allow other bits with --allow_new_bits "
             "true");
    }
    bits_broken_at = static_cast<std::int64_t>(saved.step);
    note("NOTE " + what + ": the bits are new from step " + std::to_string(saved.step) + " on");
  }
  for (const auto& [name, value] : saved.code) {
    const auto now = code.find(name);
    if (now == code.end() || now->second == value) continue;
    bits_broken_at = static_cast<std::int64_t>(saved.step);
    note("NOTE " + name + " was " + value + " and is " + now->second +
         ": the bits may differ from step " + std::to_string(saved.step) + " on");
  }
}

void Trainer::State::tell_changes(const TrainState& saved) {
  for (const auto& [name, value] : saved.options) {
    const auto now = told.find(name);
    if (now == told.end() || now->second == value) continue;
    note("NOTE " + name + " was " + value + " and is " + now->second + " from step " +
         std::to_string(saved.step + 1) + " on");
  }
}

void Trainer::State::load_or_start() {
  const auto loaded = checkpointer->load(state);
  if (loaded) {
    for (const std::string& warning : loaded->warnings) note("NOTE " + warning);
    const TrainState& saved = loaded->state;
    same_on_all([&] {
      check_resumed(saved);
      tell_changes(saved);
      samples->seek({.epoch = static_cast<std::int64_t>(saved.data.epoch),
                     .position = static_cast<std::int64_t>(saved.data.position)});
    });
    done = static_cast<std::int64_t>(saved.step);
    tokens = static_cast<std::int64_t>(saved.tokens);
    optimizer->set_updates(static_cast<std::int64_t>(saved.schedule_position));
    schedule_total = static_cast<std::int64_t>(saved.schedule_total);
    if (scaler && saved.scaler) {
      scaler->set_state({.scale = saved.scaler->scale,
                         .good_steps = static_cast<std::int64_t>(saved.scaler->good_steps),
                         .skipped = static_cast<std::int64_t>(saved.scaler->skipped)});
    }
    committed = done;
  } else {
    model->initialize(options.seed);
    optimizer->read_values();
  }
  if (options.schedule_total_given) {
    schedule_total = options.schedule.total;
  } else if (schedule_total == 0) {
    schedule_total = options.steps;
  }
  options.schedule.total = schedule_total;
  same_on_all([&] { schedule = std::make_unique<optim::Schedule>(options.schedule); });
  check_replicas(mesh->data(), parameters, done);
  if (!leads()) return;

  const std::int64_t parameter_count = [&] {
    std::int64_t count = 0;
    for (const Parameter* parameter : parameters) count += parameter->size();
    return count;
  }();
  note("lockstep " + code["lockstep"] + ": attempt " + std::to_string(attempt) + " of " +
       folder->path().string() + ", " + std::to_string(group.size()) + " rank" +
       (group.size() == 1 ? "" : "s") + " (" + group.launcher() + "), " +
       mesh->data().backend_name() + ", " +
       (options.device.kind == DeviceKind::cpu ? code["isa"] : code["gpu"]));
  note("model: " + std::to_string(parameter_count) +
       " parameters; data: " + std::to_string(corpus.files) + " files, " +
       std::to_string(corpus.train.size()) + " tokens, " + std::to_string(samples->samples()) +
       " samples; held back: " + std::to_string(corpus.held_back.size()) + " tokens of " +
       std::to_string(corpus.held_back_files) + " files");
  note("gradients: V = " + std::to_string(options.leaves()) + " leaves, " +
       std::to_string(reducer->arenas()) + " arenas of " +
       megabytes(reducer->plan().arena_elements) + ", " + std::to_string(reducer->cover()) +
       " node(s) sent, " + std::to_string(reducer->plan().buckets.size()) + " bucket(s)");
  if (shards) {
    note("optimizer: " + options.optimizer + ", zero 1, " + megabytes(optimizer_elements(state)) +
         " of state on rank 0");
  }
  if (gpu && !gpu->reason().empty()) note("NOTE no gpu_* metrics: " + gpu->reason());
  if (corpus.held_back.empty() && options.eval_every > 0) {
    note("NOTE nothing is held back: there is no evaluation");
  }
  const std::int64_t every = options.checkpoint_every;
  if (options.checkpoint_keep_best > 0 &&
      (options.checkpoint_every_auto || every % options.eval_every != 0)) {
    note("NOTE checkpoint.every = " +
         (options.checkpoint_every_auto ? std::string("auto") : std::to_string(every)) +
         " is no multiple of eval.every = " + std::to_string(options.eval_every) +
         ": checkpoint.keep_best compares only commits of evaluated steps");
  }
  if (!schedule->note().empty()) note("NOTE " + schedule->note());
  note(loaded ? "resumed at step " + std::to_string(done) + ", to do: " +
                    std::to_string(std::max<std::int64_t>(0, options.steps - done)) + " steps"
              : "a new run of " + std::to_string(options.steps) + " steps");
}

}  // namespace lockstep
