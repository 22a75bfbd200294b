// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/gpt2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/runtime/loss.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/runtime/nn/values.h"

namespace lockstep::nn {
namespace {

constexpr Gpt2Config kTiny{.layers = 2, .heads = 2, .hidden = 16, .vocab = 20, .context = 8};

class Gpt2Test : public testing::Test {
 protected:
  // Gradients of one micro-batch, into the arena.
  void run_pass(GradientArena& arena, bool add) {
    arena.open_pass(add);
    const Tensor grad = loss_.forward_backward(model_.forward(tokens_), targets_, &sums_);
    model_.backward(grad);
    stream_.synchronize();
  }

  Stream stream_{Device{}};
  Gpt2 model_{stream_, kTiny};
  CrossEntropy loss_{stream_};
  LeafSums sums_;
  Tensor tokens_ = random_tokens({3, 8}, 20, 1);
  Tensor targets_ = random_tokens({3, 8}, 20, 2);
};

std::span<const float> values_of_name(Model& model, const std::string& name) {
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->name() == name) return values_of(parameter->value());
  }
  throw std::runtime_error("no parameter " + name);
}

TEST_F(Gpt2Test, NamesItsParametersAsHuggingFaceDoes) {
  Gpt2 model(stream_, {.layers = 1, .heads = 2, .hidden = 4, .vocab = 20, .context = 8});
  std::vector<std::pair<std::string, Shape>> actual;
  for (const Parameter* p : model.parameters()) actual.emplace_back(p->name(), p->shape());
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"transformer.wte.weight", {20, 4}},
      {"transformer.wpe.weight", {8, 4}},
      {"transformer.h.0.ln_1.weight", {4}},
      {"transformer.h.0.ln_1.bias", {4}},
      {"transformer.h.0.attn.c_attn.weight", {4, 12}},
      {"transformer.h.0.attn.c_attn.bias", {12}},
      {"transformer.h.0.attn.c_proj.weight", {4, 4}},
      {"transformer.h.0.attn.c_proj.bias", {4}},
      {"transformer.h.0.ln_2.weight", {4}},
      {"transformer.h.0.ln_2.bias", {4}},
      {"transformer.h.0.mlp.c_fc.weight", {4, 16}},
      {"transformer.h.0.mlp.c_fc.bias", {16}},
      {"transformer.h.0.mlp.c_proj.weight", {16, 4}},
      {"transformer.h.0.mlp.c_proj.bias", {4}},
      {"transformer.ln_f.weight", {4}},
      {"transformer.ln_f.bias", {4}},
  };
  EXPECT_EQ(actual, expected);
}

// Relative distance of two gradients, L2.
double distance(const Tensor& a, const Tensor& b) {
  double square = 0.0;
  double size = 0.0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a.as<float>()[i]);
    square +=
        (x - static_cast<double>(b.as<float>()[i])) * (x - static_cast<double>(b.as<float>()[i]));
    size += x * x;
  }
  return std::sqrt(square / size);
}

TEST_F(Gpt2Test, InHalfPrecisionHasMatricesOfItAndGradientsInF32) {
  model_.initialize(3);
  GradientArena whole(model_.parameters());
  run_pass(whole, false);
  for (const auto& [type, tolerance] :
       {std::pair(DType::bf16, 2e-2), std::pair(DType::f16, 3e-3)}) {
    Gpt2 half(stream_, kTiny, type);
    half.initialize(3);
    GradientArena arena(half.parameters());
    arena.open_pass(false);
    LeafSums sums;
    half.backward(loss_.forward_backward(half.forward(tokens_), targets_, &sums));
    stream_.synchronize();
    EXPECT_NEAR(sums.loss, sums_.loss, tolerance * sums_.loss);
    EXPECT_NE(sums.loss, sums_.loss);
    for (std::size_t i = 0; i < half.parameters().size(); ++i) {
      const Parameter& parameter = *half.parameters()[i];
      EXPECT_EQ(parameter.value().dtype(), parameter.shape().size() == 2 ? type : DType::f32);
      EXPECT_LT(distance(model_.parameters()[i]->grad(), parameter.grad()), tolerance)
          << parameter.name() << " in " << to_string(type);
    }
  }
}

TEST_F(Gpt2Test, ScalesTheGradientOfItsLoss) {
  model_.initialize(3);
  GradientArena plain(model_.parameters());
  run_pass(plain, false);
  const double loss = sums_.loss;
  std::vector<std::vector<float>> gradients;
  for (const Parameter* parameter : model_.parameters()) {
    const auto values = values_of(parameter->grad());
    gradients.emplace_back(values.begin(), values.end());
  }
  plain.open_pass(false);
  model_.backward(loss_.forward_backward(model_.forward(tokens_), targets_, &sums_, 1024.0F));
  stream_.synchronize();
  EXPECT_EQ(sums_.loss, loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto scaled = values_of(model_.parameters()[i]->grad());
    for (std::size_t k = 0; k < scaled.size(); ++k) {
      ASSERT_NEAR(scaled[k] / 1024.0F, gradients[i][k], 1e-5F) << model_.parameters()[i]->name();
    }
  }
}

TEST_F(Gpt2Test, RefusesMatricesOfIntegers) {
  EXPECT_THROW(Gpt2(stream_, kTiny, DType::i32), UsageError);
}

TEST_F(Gpt2Test, BindsEveryParameterOnceAndNoHead) {
  StateDict state;
  model_.bind(state);
  EXPECT_EQ(state.entries().size(), model_.parameters().size());
  EXPECT_NE(state.find("transformer.wte.weight", StateKind::param), nullptr);
  EXPECT_EQ(state.find("lm_head.weight", StateKind::param), nullptr);
}

// The numbers are those of initial_normal() in tests/peer/torch_gpt2_reference.py.
TEST_F(Gpt2Test, DrawsTheInitialWeightsOfTheRule) {
  Gpt2 model(stream_, {.layers = 2, .heads = 4, .hidden = 128, .vocab = 256, .context = 128});
  model.initialize(0);
  const auto wte = values_of_name(model, "transformer.wte.weight");
  EXPECT_FLOAT_EQ(wte[0], -0.00163176062F);
  EXPECT_FLOAT_EQ(wte[1], 0.0318910554F);
  EXPECT_FLOAT_EQ(wte[2], -0.0252109021F);
  EXPECT_FLOAT_EQ(wte[12345], 0.00503270049F);
  // 0.02 / √(2 · 2 layers) = 0.01
  const auto projection = values_of_name(model, "transformer.h.1.mlp.c_proj.weight");
  EXPECT_FLOAT_EQ(projection[0], 0.000979737262F);
  EXPECT_FLOAT_EQ(projection[1], 0.0157751553F);
  EXPECT_FLOAT_EQ(projection[4095], -0.00968372542F);
  for (const float value : values_of_name(model, "transformer.h.1.mlp.c_proj.bias")) {
    EXPECT_EQ(value, 0.0F);
  }
  for (const char* name : {"transformer.h.0.ln_1", "transformer.h.1.ln_2", "transformer.ln_f"}) {
    EXPECT_THAT(values_of_name(model, std::string(name) + ".weight"), testing::Each(1.0F));
    EXPECT_THAT(values_of_name(model, std::string(name) + ".bias"), testing::Each(0.0F));
  }

  model.initialize((std::uint64_t{1} << 32) + 7);
  const auto c_attn = values_of_name(model, "transformer.h.0.attn.c_attn.weight");
  EXPECT_FLOAT_EQ(c_attn[0], -0.000109222325F);
  EXPECT_FLOAT_EQ(c_attn[1], -0.024006227F);
  EXPECT_FLOAT_EQ(c_attn[12345], -0.0337182358F);
}

TEST_F(Gpt2Test, BeginsNearTheLossOfAUniformGuess) {
  model_.initialize(3);
  loss_.evaluate(model_.forward(tokens_), targets_, &sums_);
  stream_.synchronize();
  EXPECT_NEAR(sums_.loss / static_cast<double>(sums_.tokens), std::log(20.0), 0.05);
}

TEST_F(Gpt2Test, MarksEachParameterOnceInTheOppositeOfForwardOrder) {
  model_.initialize(3);
  const Parameters parameters = model_.parameters();
  std::vector<std::string> marked;
  std::vector<Event> written;
  for (Parameter* parameter : parameters) {
    parameter->on_ready([&marked, &written, parameter](const Event& event) {
      marked.push_back(parameter->name());
      written.push_back(event);
    });
  }
  GradientArena arena(parameters);
  run_pass(arena, false);
  std::vector<std::string> expected;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    expected.push_back((*parameter)->name());
  }
  EXPECT_EQ(marked, expected);
  for (const Event& event : written) EXPECT_TRUE(event.done());
  for (Parameter* parameter : parameters) parameter->on_ready({});
}

TEST_F(Gpt2Test, MarksAParameterOnlyOnceItsGradientIsWritten) {
  model_.initialize(3);
  const Parameters parameters = model_.parameters();
  GradientArena arena(parameters);
  run_pass(arena, false);
  const std::vector<float> final_gradients = copy_of(arena.memory());

  // What a reader sees who copies each gradient as soon as it is marked.
  std::vector<float> seen(final_gradients.size());
  Stream reader{Device{}};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->on_ready([&, i](const Event& event) {
      reader.wait(event);
      reader.enqueue([&, i] {
        const auto values = values_of(parameters[i]->grad());
        std::copy(values.begin(), values.end(), seen.begin() + arena.plan().entries[i].offset);
      });
    });
  }
  std::fill(values_of(arena.memory()).begin(), values_of(arena.memory()).end(), 0.0F);
  run_pass(arena, false);
  reader.synchronize();
  EXPECT_EQ(seen, final_gradients);
  for (Parameter* parameter : parameters) parameter->on_ready({});
}

TEST_F(Gpt2Test, GivesTheSameBitsForTheSameMicroBatch) {
  model_.initialize(3);
  GradientArena first(model_.parameters());
  run_pass(first, false);
  const double loss = sums_.loss;
  // Another shape in between, so that nothing is left from the first pass by luck.
  loss_.evaluate(model_.forward(random_tokens({1, 5}, 20, 9)), random_tokens({1, 5}, 20, 8),
                 &sums_);
  GradientArena second(model_.parameters());
  run_pass(second, false);
  EXPECT_EQ(sums_.loss, loss);
  EXPECT_EQ(copy_of(second.memory()), copy_of(first.memory()));
}

TEST_F(Gpt2Test, AddsASecondMicroBatchToTheFirst) {
  model_.initialize(3);
  GradientArena arena(model_.parameters());
  run_pass(arena, false);
  const std::vector<float> once = copy_of(arena.memory());
  run_pass(arena, true);
  const std::vector<float> twice = copy_of(arena.memory());
  for (std::size_t i = 0; i < once.size(); ++i) {
    ASSERT_NEAR(twice[i], 2.0F * once[i], 1e-5F * std::max(1.0F, std::abs(once[i]))) << i;
  }
}

TEST_F(Gpt2Test, PredictsAPrefixAsTheWholeDoes) {
  model_.initialize(3);
  const std::vector<float> whole = [&] {
    const Tensor logits = model_.forward(tokens_.rows(0, 1));
    stream_.synchronize();
    return copy_of(logits);
  }();
  const Tensor prefix(Device{}, {1, 5}, DType::i32);
  std::copy_n(tokens_.as<std::int32_t>(), 5, prefix.as<std::int32_t>());
  const Tensor logits = model_.forward(prefix);
  stream_.synchronize();
  ASSERT_EQ(logits.shape(), (Shape{5, 20}));
  const auto values = values_of(logits);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], whole[i], 1e-6F) << i;
}

TEST_F(Gpt2Test, RefusesWhatItCannotCompute) {
  EXPECT_THROW(model_.forward(random_tokens({1, 9}, 20, 1)), UsageError);  // context 8
  EXPECT_THROW(model_.forward(random_tokens({8}, 20, 1)), UsageError);
  EXPECT_THROW(model_.forward(random_tensor({1, 8}, 1)), UsageError);
  EXPECT_THROW(model_.backward(random_tensor({24, 20}, 1)), UsageError);
  model_.initialize(3);
  GradientArena arena(model_.parameters());
  run_pass(arena, false);
  EXPECT_THROW(model_.backward(random_tensor({24, 20}, 1)), UsageError);  // used up
}

TEST_F(Gpt2Test, FailsTheStreamForATokenOutsideTheVocabulary) {
  model_.initialize(3);
  tokens_.as<std::int32_t>()[11] = 20;
  model_.forward(tokens_);
  EXPECT_THROW(stream_.synchronize(), DataError);
}

}  // namespace
}  // namespace lockstep::nn
