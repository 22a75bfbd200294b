// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "lockstep/runtime/corpus.h"
#include "lockstep/runtime/generate.h"
#include "lockstep/runtime/gpt2.h"
#include "tools/command.h"
#include "tools/words.h"

namespace lockstep::tools {
namespace {

constexpr const char* kUsage =
    "usage: lockstep sample RUN|URI --prompt TEXT [--step N] [--tokens 256] [--temperature 1]\n"
    "                       [--top_k 0] [--seed 0]\n"
    "\n"
    "Prints the prompt and what the model of the newest commit (or of step N) makes of it. At\n"
    "temperature 0 each token is the most likely one; else the same seed draws the same text, "
    "from\n"
    "the top_k most likely tokens (0: all).\n";

constexpr std::uint64_t kMostTokens = 100'000'000;

nn::Gpt2Config model_of(const CommitDetail& detail) {
  if (detail.state.model.empty()) {
    throw DataError("the checkpoint of step " + std::to_string(detail.commit.step) +
                        " does not say how its model is configured",
                    "only checkpoints of `lockstep train` can be sampled");
  }
  const nn::Gpt2Config config = nn::gpt2_config_from_json(detail.state.model);
  // Checkpoints from before the tokeniser was recorded: bytes are the only vocabulary of 256.
  const std::string& tokenizer = detail.state.tokenizer;
  const bool bytes = tokenizer.empty() ? config.vocab == kByteVocabulary : tokenizer == "bytes";
  if (!bytes) {
    throw ConfigError("the model of step " + std::to_string(detail.commit.step) +
                          " was trained on token shards with a vocabulary of " +
                          std::to_string(config.vocab) +
                          ", and this version has only the tokeniser of bytes",
                      "use `lockstep ckpt export` and sample with Hugging Face's transformers");
  }
  return config;
}

// As it was trained: its matrices have one type.
DType precision_of(const CommitDetail& detail) {
  DType type = DType::f32;
  for (const auto& tensor : detail.tensors) {
    if (is_half(tensor.dtype)) type = tensor.dtype;
  }
  return type;
}

std::uint64_t token_count(const Words& words) {
  const std::uint64_t count = words.number("--tokens").value_or(256);
  if (count > kMostTokens) {
    throw ConfigError("sample: --tokens " + std::to_string(count) + " is too large",
                      "give at most " + std::to_string(kMostTokens));
  }
  return count;
}

nn::SamplingOptions options_of(const Words& words) {
  const std::uint64_t top_k = words.number("--top_k").value_or(0);
  const nn::SamplingOptions options{
      .temperature = words.real("--temperature").value_or(1.0),
      // More than there are tokens is all of them.
      .top_k = static_cast<std::int64_t>(std::min<std::uint64_t>(top_k, kMostTokens)),
      .seed = words.number("--seed").value_or(0),
      .vocabulary = kByteVocabulary};
  nn::check(options);
  return options;
}

void print(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int run_sample(const Arguments& arguments) {
  if (arguments.size() == 1 && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const Words words("sample", arguments,
                    {"--prompt", "--step", "--tokens", "--temperature", "--top_k", "--seed"},
                    kUsage);
  const std::string& prompt = words.text("--prompt");
  if (prompt.empty()) {
    throw ConfigError("sample: --prompt is empty",
                      "the model needs at least one byte to go on from");
  }
  const std::uint64_t count = token_count(words);
  const nn::SamplingOptions options = options_of(words);
  const auto store = open_checkpoints(words.place());
  const CommitDetail detail = show_commit(*store, words.number("--step"));
  const nn::Gpt2Config config = model_of(detail);

  Stream compute(Device{}, "compute");
  nn::Gpt2 model(compute, config, precision_of(detail));
  StateDict state;
  model.bind(state);
  load_commit(*store, state, detail.commit.step);
  std::vector<std::int32_t> tokens;
  for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
  print(prompt);
  nn::generate(model, compute, config.context, std::move(tokens), static_cast<std::int64_t>(count),
               options, [](std::int32_t token) {
                 const char byte = static_cast<char>(token);
                 print({&byte, 1});
               });
  print("\n");
  return 0;
}

}  // namespace lockstep::tools
