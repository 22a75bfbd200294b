// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>

#include "lockstep/core/error.h"
#include "lockstep/runtime/train_options.h"

namespace lockstep {
namespace {

constexpr ConfigType kBoolean = ConfigType::boolean;
constexpr ConfigType kInteger = ConfigType::integer;
constexpr ConfigType kUnsigned = ConfigType::unsigned_integer;
constexpr ConfigType kReal = ConfigType::real;
constexpr ConfigType kText = ConfigType::text;

ConfigKey text(std::string name, std::string value, std::string help,
               std::vector<std::string> choices = {}) {
  return {.name = std::move(name),
          .type = kText,
          .default_value = std::move(value),
          .help = std::move(help),
          .choices = std::move(choices)};
}

ConfigKey number(ConfigType type, std::string name, std::string value, std::string help,
                 double min = -std::numeric_limits<double>::infinity(),
                 double max = std::numeric_limits<double>::infinity()) {
  return {.name = std::move(name),
          .type = type,
          .default_value = std::move(value),
          .help = std::move(help),
          .min = min,
          .max = max};
}

/// An integer, or a word in place of one.
ConfigKey number_or(std::string word, ConfigKey key) {
  key.choices = {std::move(word)};
  return key;
}

using Settings = std::map<std::string, std::string>;

const std::map<std::string, Settings>& presets() {
  static const std::map<std::string, Settings> table = {
      {"gpt2-tiny",
       {{"model.layers", "4"},
        {"model.hidden", "128"},
        {"model.heads", "4"},
        {"model.context", "128"},
        {"model.vocab", "256"}}},
      {"gpt2-3m",
       {{"model.layers", "4"},
        {"model.hidden", "256"},
        {"model.heads", "8"},
        {"model.context", "256"},
        {"model.vocab", "256"}}},
      {"gpt2-124m",
       {{"model.layers", "12"},
        {"model.hidden", "768"},
        {"model.heads", "12"},
        {"model.context", "1024"},
        {"model.vocab", "50257"}}},
  };
  return table;
}

// Keys of the design that this version does not have: a clear answer instead of "unknown".
const std::vector<std::string>& later_keys() {
  static const std::vector<std::string> later = {
      "unknown",        "model.kv_heads",    "data.cache", "data.cache_bytes", "data.window",
      "data.mix",       "sequence_parallel", "time_limit", "stop_at",          "budget",
      "price",          "idle_stop",         "on_exit",    "metrics.port",     "metrics.bind",
      "notice.sources", "notice.url"};
  return later;
}

// Variables that are ours but no keys: scripts and tests use them.
const std::vector<std::string>& reserved_variables() {
  static const std::vector<std::string> reserved = {
      "LOCKSTEP_BIN",     "LOCKSTEP_SOURCE", "LOCKSTEP_JOBS",  "LOCKSTEP_CUDA_*",
      "LOCKSTEP_LOCAL_*", "LOCKSTEP_TEST_*", "LOCKSTEP_FAKE_*"};
  return reserved;
}

void apply_preset(Config& config) {
  const std::string& name = config.text("model.preset");
  const auto found = presets().find(name);
  if (found == presets().end()) return;  // "none"
  for (const auto& [key, value] : found->second) config.set_preset(name, key, value);
}

}  // namespace

std::vector<ConfigKey> train_keys() {
  return {
      text("model.preset", "gpt2-tiny", "a named size; explicit keys override it",
           {"gpt2-tiny", "gpt2-3m", "gpt2-124m", "none"}),
      text("model.family", "gpt2", "the architecture", {"gpt2"}),
      number(kInteger, "model.layers", "12", "transformer blocks", 1, 1e4),
      number(kInteger, "model.hidden", "768", "width C", 1, 1e6),
      number(kInteger, "model.heads", "12", "attention heads; divide hidden", 1, 1e5),
      number(kInteger, "model.ffn", "0", "width of the MLP; 0: 4 · hidden", 0, 1e7),
      number(kInteger, "model.vocab", "50257", "tokens; at least what the tokeniser needs", 2, 1e8),
      number(kInteger, "model.context", "1024", "tokens in a sequence", 1, 1e6),
      number(kBoolean, "model.tie", "true", "the head shares the token embedding"),
      number(kReal, "model.dropout", "0", "share of activations dropped", 0, 1),
      text("data.source", "",
           "text:PATH, a file or a folder; bin:PATH, token shards of llm.c or nanoGPT: a file, a "
           "folder or a pattern"),
      text("data.eval", "", "a source held back for evaluation; then all of data.source trains"),
      number(kUnsigned, "data.seed", "0", "of the sample order; default: seed"),
      text("data.tokenizer", "bytes", "how text becomes tokens; bin: has them", {"bytes"}),
      number(kInteger, "batch.global", "16", "sequences of an update", 1, 1e9),
      number(kInteger, "batch.micro", "4", "sequences of one forward/backward", 1, 1e9),
      number(kInteger, "mesh.data", "0", "data-parallel ranks; 0: all", 0, 1e6),
      number(kInteger, "mesh.tensor", "1", "tensor-parallel ranks", 1, 1e6),
      text("optim.name", "adamw", "the update rule", {"adamw", "adam", "lamb", "sgd"}),
      number(kReal, "optim.lr", "3e-4", "peak learning rate", 0),
      number(kReal, "optim.beta1", "0.9", "Adam, AdamW, LAMB", 0, 1),
      number(kReal, "optim.beta2", "0.95", "Adam, AdamW, LAMB", 0, 1),
      number(kReal, "optim.eps", "1e-8", "Adam, AdamW, LAMB", 0),
      number(kReal, "optim.weight_decay", "0.1", "of the parameters that decay", 0),
      text("optim.no_decay", optim::kDefaultNoDecay, "globs over names, with commas"),
      number(kReal, "optim.clip", "1", "global norm; 0: off", 0),
      number(kReal, "optim.momentum", "0", "SGD", 0, 1),
      number(kBoolean, "optim.nesterov", "false", "SGD"),
      text("schedule.name", "cosine", "of the learning rate",
           {"constant", "linear", "cosine", "wsd"}),
      number(kInteger, "schedule.warmup", "100", "updates of linear warm-up", 0),
      number(kInteger, "schedule.total", "0", "updates until min_lr; 0: steps of the first start",
             0),
      number(kReal, "schedule.min_lr", "-1", "last learning rate; -1: 0.1 · lr", -1),
      number(kReal, "loss.smoothing", "0", "label smoothing", 0, 0.999),
      text("precision", "f32", "of matrices and their products; bf16 and fp16 keep a master in f32",
           {"f32", "bf16", "fp16"}),
      number(kReal, "loss_scale.init", "65536", "fp16: of the loss's gradient, at first", 0),
      number(kInteger, "loss_scale.growth_every", "2000",
             "fp16: good steps in a row until the scale doubles", 1),
      number(kReal, "loss_scale.max", "16777216", "fp16: the largest scale", 0),
      number(kReal, "loss_scale.min", "5.9604644775390625e-08",
             "fp16: the smallest scale; an overflow there ends the run (81)", 0),
      text("reduction", "invariant", "how gradients are added", {"fast", "ordered", "invariant"}),
      text("wire", "f32",
           "element type of gradients between hosts; bf16 needs reduction = fast or ordered",
           {"f32", "bf16"}),
      number(kInteger, "zero", "0",
             "1: a data-parallel rank keeps optimizer state for its share alone", 0, 1),
      text("recompute", "none", "activations", {"none"}),
      text(
          "device", "cpu",
          "of tensors and kernels: cpu, cuda (the GPU of the rank's number on its host) or cuda:N"),
      text("backend", "auto", "of the collectives", {"auto", "shm", "mpi", "nccl"}),
      number(kInteger, "threads", "1", "of a rank's kernels", 1, 1),
      number(kInteger, "bucket_bytes", "26214400", "size of a gradient bucket", 1),
      text("unused", "error", "a parameter without a gradient", {"error", "zero"}),
      number(kInteger, "replica_check", "100",
             "steps between comparisons of the replicas; 0: at the start only", 0),
      text("store", "", "of checkpoints; default: file:RUN/checkpoints"),
      text("resume", "auto", "from the newest commit", {"auto", "never", "must"}),
      text("init", "random", "of the weights", {"random"}),
      number_or("auto", number(kInteger, "checkpoint.every", "100",
                               "steps; 0: at the end only; auto: from what saves are measured to "
                               "cost and checkpoint.mtbf",
                               0)),
      number(kReal, "checkpoint.mtbf", "7200",
             "seconds between failures of the whole job, for checkpoint.every = auto", 1, 1e9),
      number(kReal, "checkpoint.every_seconds", "0",
             "seconds between saves, beside checkpoint.every; 0: steps alone count", 0),
      number(kBoolean, "checkpoint.async", "true",
             "save a copy in the background while training goes on"),
      number(kInteger, "checkpoint.max_failures", "3",
             "saves that fail in a row until the job ends with 79", 1),
      number(kInteger, "checkpoint.keep", "3", "newest commits to keep", 1),
      number(kInteger, "checkpoint.keep_best", "0",
             "commits of the lowest eval_loss to keep besides; of those on evaluation steps", 0),
      number(kInteger, "eval.every", "100", "steps; 0: never", 0),
      number(kInteger, "eval.batches", "4", "global batches of an evaluation", 1),
      number(kInteger, "steps", "1000", "to be done in all, over all attempts", 0),
      number(kUnsigned, "seed", "0", "of the weights"),
      number(kInteger, "pause_at", "0",
             "step at which this attempt saves and leaves with 75; 0: none", 0),
      text("run", "", "output folder; default: runs/<preset or family>-<seed>"),
      number(kInteger, "log.every", "1", "steps between lines of metrics.jsonl", 1),
      text("trace", "", "Chrome trace to write, one file a rank"),
      number(kInteger, "timeout.init", "120", "seconds to wait for all ranks", 1),
      number(kInteger, "timeout.collective", "300", "seconds to wait in one operation", 1),
      number(kInteger, "timeout.exit", "30", "seconds to wait for all ranks at the end", 1),
      number(kBoolean, "allow_new_bits", "false", "go on although V or batch.micro changed"),
  };
}

Config read_train_config(const std::vector<std::string>& arguments) {
  std::vector<std::string> flags;
  std::string file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) {
      file = arguments[i].substr(9);
    } else if (arguments[i] == "--config") {
      if (i + 1 == arguments.size()) throw ConfigError("flag --config has no value", "name a file");
      file = arguments[++i];
    } else {
      flags.push_back(arguments[i]);
    }
  }
  Config config(train_keys(), later_keys());
  config.read_arguments(flags);
  config.read_environment(environment_variables(), reserved_variables());
  if (!file.empty()) config.read_file(file);
  apply_preset(config);
  return config;
}

std::vector<std::pair<std::string, std::string>> keys_to_match(const Config& config) {
  auto keys = config.resolved();
  std::erase_if(keys, [](const auto& entry) {
    return entry.first.starts_with("metrics.") || entry.first.starts_with("data.cache") ||
           entry.first == "trace";
  });
  return keys;
}

std::map<std::string, std::string> keys_to_tell(const Config& config) {
  std::map<std::string, std::string> keys;
  for (const auto& [name, value] : config.resolved()) {
    const bool told = name.starts_with("optim.") || name.starts_with("schedule.") ||
                      name.starts_with("loss") || name == "zero" || name == "unused";
    if (told) keys[name] = value;
  }
  return keys;
}

}  // namespace lockstep
