// SPDX-License-Identifier: Apache-2.0
// Against PyTorch: tests/golden/make_gpt2_golden.py says what is stored and how it was made.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/rng.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/clip.h"
#include "lockstep/runtime/gpt2.h"
#include "lockstep/runtime/loss.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

nlohmann::json read_json() {
  std::ifstream file(LOCKSTEP_GOLDEN "/gpt2_tiny.json");
  return nlohmann::json::parse(file);
}

std::vector<float> read_floats() {
  const std::string path = LOCKSTEP_GOLDEN "/gpt2_tiny.bin";
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file) throw std::runtime_error("cannot read " + path);
  return values;
}

Gpt2Config config_of(const nlohmann::json& json) {
  return {.layers = json.at("n_layer"),
          .heads = json.at("n_head"),
          .hidden = json.at("n_embd"),
          .ffn = json.at("n_inner"),
          .vocab = json.at("vocab_size"),
          .context = json.at("n_positions"),
          .epsilon = json.at("layer_norm_epsilon")};
}

Tensor rows_of(const nlohmann::json& json) {
  const auto rows = json.get<std::vector<std::vector<std::int32_t>>>();
  std::vector<std::int32_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return tensor_of(
      {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.at(0).size())}, flat);
}

double relative_l2(std::span<const float> actual, std::span<const float> expected) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i];
    difference += (actual[i] - e) * (actual[i] - e);
    size += e * e;
  }
  return std::sqrt(difference / size);
}

class Gpt2Golden : public testing::Test {
 protected:
  Gpt2Golden() {
    for (Parameter* parameter : model_.parameters()) {
      const std::string& name = parameter->name();
      const std::span<float> values = values_of(parameter->value());
      fill_normal(values, 0, golden_.at("seed"), name, golden_.at("std"));
      if (name.find(".ln_") != std::string::npos && name.ends_with(".weight")) {
        for (float& value : values) value += 1.0F;
      }
    }
  }

  const nlohmann::json golden_ = read_json();
  const std::vector<float> floats_ = read_floats();
  const Tensor tokens_ = rows_of(golden_.at("tokens"));
  const Tensor targets_ = rows_of(golden_.at("targets"));
  Stream stream_{Device{}};
  Gpt2 model_{stream_, config_of(golden_.at("config"))};
  CrossEntropy loss_{stream_};
  LeafSums sums_;
};

TEST_F(Gpt2Golden, HasTheLogitsLossAndGradientsOfPyTorch) {
  const Tensor logits = model_.forward(tokens_);
  stream_.synchronize();
  std::span<const float> rest = floats_;
  const auto take = [&](std::int64_t count) {
    const auto part = rest.first(static_cast<std::size_t>(count));
    rest = rest.subspan(part.size());
    return part;
  };
  EXPECT_LT(relative_l2(values_of(logits), take(logits.size())), 1e-5) << "logits";

  GradientArena arena(model_.parameters());
  arena.open_pass(false);
  model_.backward(loss_.forward_backward(logits, targets_, &sums_));
  stream_.synchronize();
  EXPECT_EQ(sums_.tokens, golden_.at("valid_tokens"));
  EXPECT_NEAR(sums_.loss / golden_.at("loss_sum").get<double>(), 1.0, 1e-6);

  const auto& names = golden_.at("parameters");
  ASSERT_EQ(names.size(), arena.parameters().size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Parameter& parameter = *arena.parameters()[i];
    ASSERT_EQ(parameter.name(), names.at(i).at("name"));
    ASSERT_EQ(parameter.shape(), names.at(i).at("shape").get<Shape>());
    EXPECT_LT(relative_l2(values_of(parameter.grad()), take(parameter.size())), 1e-5)
        << parameter.name();
  }
  EXPECT_TRUE(rest.empty());
}

TEST_F(Gpt2Golden, HasTheLossesOfPyTorchUnderAdamW) {
  const auto& options = golden_.at("optimizer");
  GradientArena arena(model_.parameters());
  optim::GlobalNorm global_norm(arena.parameters(), arena.plan());
  optim::AdamW adamw(arena.parameters(), {.beta1 = options.at("beta1"),
                                          .beta2 = options.at("beta2"),
                                          .epsilon = options.at("eps"),
                                          .weight_decay = options.at("weight_decay"),
                                          .no_decay = options.at("no_decay")});
  for (std::size_t step = 0; step < 5; ++step) {
    arena.open_pass(false);
    model_.backward(loss_.forward_backward(model_.forward(tokens_), targets_, &sums_));
    const double norm = global_norm.measure(stream_, arena.memory()).per_token(sums_.tokens);
    adamw.step(stream_, {.learning_rate = options.at("lr"),
                         .scale = static_cast<float>(1.0 / static_cast<double>(sums_.tokens)),
                         .clip = optim::clip_factor(norm, options.at("clip"))});
    stream_.synchronize();
    const double loss = sums_.loss / static_cast<double>(sums_.tokens);
    EXPECT_NEAR(loss / golden_.at("adamw_losses").at(step).get<double>(), 1.0, 1e-5) << step;
    EXPECT_NEAR(norm / golden_.at("adamw_grad_norms").at(step).get<double>(), 1.0, 1e-4) << step;
  }
}

}  // namespace
}  // namespace lockstep::nn
