// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/runtime/gpt2.h"

namespace lockstep::nn {
namespace {

void require_positive(const char* key, std::int64_t value) {
  if (value > 0) return;
  throw ConfigError("model." + std::string(key) + " = " + std::to_string(value),
                    "give a number of at least 1");
}

// A field that our model has no choice in: absent, or as we have it.
template <typename T>
void require_field(const nlohmann::json& json, const char* field, const T& wanted) {
  const auto found = json.find(field);
  if (found == json.end() || *found == wanted) return;
  throw ConfigError(fmt::format("config.json: {} is {}", field, found->dump()),
                    fmt::format("this model has {} only", nlohmann::json(wanted).dump()));
}

}  // namespace

Gpt2Config resolved(Gpt2Config config) {
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  require_positive("layers", config.layers);
  require_positive("heads", config.heads);
  require_positive("hidden", config.hidden);
  require_positive("ffn", config.ffn);
  require_positive("vocab", config.vocab);
  require_positive("context", config.context);
  if (config.hidden % config.heads != 0) {
    throw ConfigError(fmt::format("model.heads = {} does not divide model.hidden = {}",
                                  config.heads, config.hidden),
                      "every head has hidden / heads columns");
  }
  return config;
}

std::string gpt2_config_json(const Gpt2Config& config) {
  const Gpt2Config full = resolved(config);
  nlohmann::ordered_json json;
  json["model_type"] = "gpt2";
  json["architectures"] = {"GPT2LMHeadModel"};
  json["n_layer"] = full.layers;
  json["n_head"] = full.heads;
  json["n_embd"] = full.hidden;
  json["n_inner"] = full.ffn;
  json["n_positions"] = full.context;
  json["vocab_size"] = full.vocab;
  json["activation_function"] = "gelu_new";
  // As text through the shortest f32 form: 1e-05, not the digits of its double.
  json["layer_norm_epsilon"] = nlohmann::json::parse(fmt::format("{}", full.epsilon));
  json["tie_word_embeddings"] = true;
  json["embd_pdrop"] = 0.0;
  json["attn_pdrop"] = 0.0;
  json["resid_pdrop"] = 0.0;
  json["torch_dtype"] = "float32";
  return json.dump(2) + "\n";
}

Gpt2Config gpt2_config_from_json(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    require_field(json, "model_type", "gpt2");
    require_field(json, "activation_function", "gelu_new");
    require_field(json, "tie_word_embeddings", true);
    require_field(json, "scale_attn_weights", true);
    require_field(json, "scale_attn_by_inverse_layer_idx", false);
    Gpt2Config config;
    config.layers = json.at("n_layer").get<std::int64_t>();
    config.heads = json.at("n_head").get<int>();
    config.hidden = json.at("n_embd").get<std::int64_t>();
    config.context = json.at("n_positions").get<std::int64_t>();
    config.vocab = json.at("vocab_size").get<std::int64_t>();
    config.epsilon = json.value("layer_norm_epsilon", 1e-5F);
    const auto inner = json.find("n_inner");  // null: four times the width
    config.ffn = inner == json.end() || inner->is_null() ? 0 : inner->get<std::int64_t>();
    return resolved(config);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(std::string("config.json: ") + error.what(),
                      "give the config.json of a GPT-2 in Hugging Face's form");
  }
}

}  // namespace lockstep::nn
