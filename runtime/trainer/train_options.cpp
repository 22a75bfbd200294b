// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/train_options.h"

#include <string>

#include "lockstep/core/error.h"
#include "lockstep/runtime/corpus.h"

namespace lockstep {
namespace {

nn::Gpt2Config model_of(const Config& config) {
  nn::Gpt2Config model;
  model.layers = config.integer("model.layers");
  model.hidden = config.integer("model.hidden");
  model.heads = static_cast<int>(config.integer("model.heads"));
  model.ffn = config.integer("model.ffn");
  model.vocab = config.integer("model.vocab");
  model.context = config.integer("model.context");
  if (!config.boolean("model.tie")) {
    throw ConfigError("model.tie = false is not in this version",
                      "leave it out: gpt2 ties its head");
  }
  if (config.real("model.dropout") != 0.0) {
    throw ConfigError("model.dropout is not in this version", "leave it out");
  }
  const bool bytes =
      is_text_source(config.text("data.source")) || is_text_source(config.text("data.eval"));
  if (bytes && model.vocab < kByteVocabulary) {
    throw ConfigError("model.vocab = " + std::to_string(model.vocab) +
                          " is smaller than the tokeniser's " + std::to_string(kByteVocabulary),
                      "give at least " + std::to_string(kByteVocabulary));
  }
  return nn::resolved(model);
}

Reduction reduction_of(const std::string& name) {
  if (name == "fast") return Reduction::fast;
  return name == "ordered" ? Reduction::ordered : Reduction::invariant;
}

DType precision_of(const std::string& name) {
  if (name == "bf16") return DType::bf16;
  return name == "fp16" ? DType::f16 : DType::f32;
}

ResumePolicy resume_of(const std::string& name) {
  if (name == "never") return ResumePolicy::never;
  return name == "must" ? ResumePolicy::must : ResumePolicy::automatic;
}

void read_optimizer(const Config& config, TrainOptions& options) {
  options.optimizer = config.text("optim.name");
  options.moments = {.beta1 = config.real("optim.beta1"),
                     .beta2 = config.real("optim.beta2"),
                     .epsilon = static_cast<float>(config.real("optim.eps")),
                     .weight_decay = static_cast<float>(config.real("optim.weight_decay")),
                     .no_decay = config.text("optim.no_decay")};
  options.sgd = {.momentum = static_cast<float>(config.real("optim.momentum")),
                 .nesterov = config.boolean("optim.nesterov"),
                 .weight_decay = options.moments.weight_decay,
                 .no_decay = options.moments.no_decay};
  options.clip = config.real("optim.clip");
  options.schedule = {.kind = optim::parse_schedule(config.text("schedule.name")),
                      .peak = config.real("optim.lr"),
                      .warmup = config.integer("schedule.warmup"),
                      .total = config.integer("schedule.total"),
                      .min_lr = {}};
  if (const double min_lr = config.real("schedule.min_lr"); min_lr >= 0.0) {
    options.schedule.min_lr = min_lr;
  } else if (min_lr != -1.0) {
    throw ConfigError("schedule.min_lr is negative", "give a rate, or -1 for 0.1 · optim.lr");
  }
  options.schedule_total_given = options.schedule.total > 0;
}

void refuse_unbuilt(const Config& config) {
  if (config.integer("mesh.tensor") != 1) {
    throw ConfigError("mesh.tensor > 1 is not in this version", "use data parallelism alone");
  }
}

std::filesystem::path run_of(const Config& config) {
  if (const std::string& run = config.text("run"); !run.empty()) return run;
  const std::string& preset = config.text("model.preset");
  const std::string& name = preset == "none" ? config.text("model.family") : preset;
  return std::filesystem::path("runs") /
         (name + "-" + std::to_string(config.unsigned_integer("seed")));
}

}  // namespace

TrainOptions train_options(const Config& config) {
  refuse_unbuilt(config);
  TrainOptions options;
  options.model = model_of(config);
  options.data_source = config.text("data.source");
  if (options.data_source.empty()) {
    throw ConfigError("data.source is missing", "give --data.source text:PATH or bin:PATH");
  }
  options.data_eval = config.text("data.eval");
  options.seed = config.unsigned_integer("seed");
  options.data_seed =
      config.given("data.seed") ? config.unsigned_integer("data.seed") : options.seed;
  options.global_batch = config.integer("batch.global");
  options.micro_batch = config.integer("batch.micro");
  if (options.global_batch % options.micro_batch != 0) {
    throw ConfigError(
        "batch.global = " + std::to_string(options.global_batch) +
            " is not divisible by batch.micro = " + std::to_string(options.micro_batch),
        "the global batch is a whole number of micro-batches");
  }
  options.mesh_data = static_cast<int>(config.integer("mesh.data"));
  read_optimizer(config, options);
  options.smoothing = static_cast<float>(config.real("loss.smoothing"));
  options.precision = precision_of(config.text("precision"));
  options.loss_scale = {.init = config.real("loss_scale.init"),
                        .growth_every = config.integer("loss_scale.growth_every"),
                        .min = config.real("loss_scale.min"),
                        .max = config.real("loss_scale.max")};
  options.reducer.reduction = reduction_of(config.text("reduction"));
  options.reducer.wire = config.text("wire") == "bf16" ? DType::bf16 : DType::f32;
  check(options.reducer);
  options.reducer.bucket_bytes = static_cast<std::size_t>(config.integer("bucket_bytes"));
  options.reducer.unused = config.text("unused") == "zero" ? Unused::zero : Unused::error;
  options.zero = static_cast<int>(config.integer("zero"));
  options.reducer.scatter = options.zero > 0;
  options.replica_check = config.integer("replica_check");
  options.device = parse_device(config.text("device"));
  options.device_of_rank = config.text("device") == "cuda";
  options.group.backend = config.text("backend");
  options.group.init_timeout = std::chrono::seconds(config.integer("timeout.init"));
  options.group.collective_timeout = std::chrono::seconds(config.integer("timeout.collective"));
  options.group.exit_timeout = std::chrono::seconds(config.integer("timeout.exit"));
  options.run = run_of(config);
  options.store = config.text("store").empty() ? "file:" + (options.run / "checkpoints").string()
                                               : config.text("store");
  options.resume = resume_of(config.text("resume"));
  options.checkpoint_every_auto = config.word("checkpoint.every") == "auto";
  options.checkpoint_every = options.checkpoint_every_auto ? 0 : config.integer("checkpoint.every");
  options.checkpoint_mtbf = config.real("checkpoint.mtbf");
  options.checkpoint_every_seconds = config.real("checkpoint.every_seconds");
  if (options.checkpoint_every_auto && options.checkpoint_every_seconds > 0.0) {
    throw ConfigError(
        "checkpoint.every = auto chooses the interval, and so does "
        "checkpoint.every_seconds",
        "give one of the two");
  }
  options.checkpoint_async = config.boolean("checkpoint.async");
  options.checkpoint_max_failures = config.integer("checkpoint.max_failures");
  options.checkpoint_keep = config.integer("checkpoint.keep");
  options.checkpoint_keep_best = config.integer("checkpoint.keep_best");
  options.eval_every = config.integer("eval.every");
  options.eval_batches = config.integer("eval.batches");
  if (options.checkpoint_keep_best > 0 && options.eval_every == 0) {
    throw ConfigError("checkpoint.keep_best compares eval_loss, and eval.every = 0 evaluates never",
                      "give eval.every, best one that divides checkpoint.every");
  }
  options.steps = config.integer("steps");
  if (config.integer("pause_at") > 0) options.pause_at = config.integer("pause_at");
  options.log_every = config.integer("log.every");
  options.trace = config.text("trace");
  options.allow_new_bits = config.boolean("allow_new_bits");
  return options;
}

}  // namespace lockstep
