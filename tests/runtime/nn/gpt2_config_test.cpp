// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/runtime/gpt2.h"

namespace lockstep::nn {
namespace {

constexpr Gpt2Config kTiny{.layers = 4, .heads = 4, .hidden = 128, .vocab = 256, .context = 128};

std::string message_of(const Gpt2Config& config) {
  try {
    resolved(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string edited(const char* field, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(gpt2_config_json(kTiny));
  json[field] = value;
  return json.dump();
}

TEST(Gpt2Config, WritesWhatHuggingFaceReads) {
  const auto json = nlohmann::json::parse(gpt2_config_json(kTiny));
  EXPECT_EQ(json.at("model_type"), "gpt2");
  EXPECT_EQ(json.at("n_layer"), 4);
  EXPECT_EQ(json.at("n_head"), 4);
  EXPECT_EQ(json.at("n_embd"), 128);
  EXPECT_EQ(json.at("n_inner"), 512);
  EXPECT_EQ(json.at("n_positions"), 128);
  EXPECT_EQ(json.at("vocab_size"), 256);
  EXPECT_EQ(json.at("activation_function"), "gelu_new");
  EXPECT_EQ(json.at("layer_norm_epsilon"), 1e-5);
  EXPECT_EQ(json.at("tie_word_embeddings"), true);
}

TEST(Gpt2Config, ComesBackFromItsText) {
  EXPECT_EQ(gpt2_config_from_json(gpt2_config_json(kTiny)), resolved(kTiny));
  EXPECT_EQ(gpt2_config_from_json(edited("n_inner", nullptr)), resolved(kTiny));
  EXPECT_EQ(gpt2_config_from_json(edited("n_inner", 100)).ffn, 100);
}

TEST(Gpt2Config, RefusesModelsThatItWouldComputeWrongly) {
  EXPECT_THROW(gpt2_config_from_json(edited("model_type", "llama")), ConfigError);
  EXPECT_THROW(gpt2_config_from_json(edited("activation_function", "relu")), ConfigError);
  EXPECT_THROW(gpt2_config_from_json(edited("tie_word_embeddings", false)), ConfigError);
  EXPECT_THROW(gpt2_config_from_json(edited("scale_attn_by_inverse_layer_idx", true)), ConfigError);
  EXPECT_THROW(gpt2_config_from_json(edited("n_layer", "four")), ConfigError);
  EXPECT_THROW(gpt2_config_from_json("{"), ConfigError);
  EXPECT_THROW(gpt2_config_from_json("{}"), ConfigError);
}

TEST(Gpt2Config, NamesTheKeyThatDoesNotFit) {
  EXPECT_EQ(message_of({.layers = 0}), "model.layers = 0");
  EXPECT_EQ(message_of({.heads = -1}), "model.heads = -1");
  EXPECT_EQ(message_of({.vocab = 0}), "model.vocab = 0");
  EXPECT_EQ(message_of({.heads = 5, .hidden = 128}),
            "model.heads = 5 does not divide model.hidden = 128");
}

}  // namespace
}  // namespace lockstep::nn
