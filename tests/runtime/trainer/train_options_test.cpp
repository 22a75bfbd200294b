// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TrainOptions read(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--data.source", "text:x"});
  return train_options(read_train_config(arguments));
}

TEST(TrainOptions, HaveTheDefaultsOfTheDesign) {
  const TrainOptions options = read({});
  EXPECT_EQ(options.model.layers, 4);
  EXPECT_EQ(options.model.vocab, 256);
  EXPECT_EQ(options.schedule.peak, 3e-4);
  EXPECT_EQ(options.schedule.warmup, 100);
  EXPECT_FALSE(options.schedule.min_lr);
  EXPECT_EQ(options.moments.beta1, 0.9);
  EXPECT_EQ(options.moments.beta2, 0.95);
  EXPECT_EQ(options.moments.weight_decay, 0.1F);
  EXPECT_EQ(options.clip, 1.0);
  EXPECT_EQ(options.global_batch, 16);
  EXPECT_EQ(options.leaves(), 4);
  EXPECT_EQ(options.reducer.reduction, Reduction::invariant);
  EXPECT_EQ(options.checkpoint_every, 100);
  EXPECT_EQ(options.checkpoint_every_seconds, 0.0);
  EXPECT_EQ(options.checkpoint_keep, 3);
  EXPECT_TRUE(options.checkpoint_async);
  EXPECT_EQ(options.checkpoint_max_failures, 3);
  EXPECT_EQ(options.run, "runs/gpt2-tiny-0");
  EXPECT_EQ(options.store, "file:runs/gpt2-tiny-0/checkpoints");
}

TEST(TrainOptions, TakeAutoForTheStepsBetweenSaves) {
  EXPECT_FALSE(read({}).checkpoint_every_auto);
  const TrainOptions options = read({"--checkpoint.every", "auto", "--checkpoint.mtbf", "900"});
  EXPECT_TRUE(options.checkpoint_every_auto);
  EXPECT_EQ(options.checkpoint_every, 0);
  EXPECT_EQ(options.checkpoint_mtbf, 900);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"--checkpoint.every", "automatic"},
        {"--checkpoint.every", "auto", "--checkpoint.every_seconds", "3"},
        {"--checkpoint.mtbf", "0"}}) {
    EXPECT_THROW(read(bad), ConfigError) << bad[1];
  }
}

TEST(TrainOptions, LetExplicitKeysOverrideAPreset) {
  const TrainOptions options =
      read({"--model.preset", "gpt2-3m", "--model.layers", "2", "--seed", "5"});
  EXPECT_EQ(options.model.layers, 2);
  EXPECT_EQ(options.model.hidden, 256);
  EXPECT_EQ(options.model.ffn, 1024);
  EXPECT_EQ(options.run, "runs/gpt2-3m-5");
}

TEST(TrainOptions, TakeTheSeedForTheDataUnlessItHasItsOwn) {
  EXPECT_EQ(read({"--seed", "5"}).data_seed, 5U);
  EXPECT_EQ(read({"--seed", "5", "--data.seed", "0"}).data_seed, 0U);
}

TEST(TrainOptions, RefuseWhatContradictsItself) {
  const std::vector<std::vector<std::string>> bad = {
      {"--batch.micro", "5"},      {"--model.vocab", "255"},   {"--model.heads", "3"},
      {"--schedule.min_lr", "-2"}, {"--mesh.tensor", "2"},     {"--zero", "2"},
      {"--model.tie", "false"},    {"--model.dropout", "0.1"}, {"--device", "gpu"},
      {"--precision", "fp8"},      {"--wire", "bf16"}};
  for (const auto& arguments : bad) {
    EXPECT_THROW(read(arguments), ConfigError) << arguments[0];
  }
  EXPECT_THROW(train_options(read_train_config({})), ConfigError) << "no data.source";
}

TEST(TrainOptions, ReadTheWireType) {
  EXPECT_EQ(read({}).reducer.wire, DType::f32);
  for (const char* reduction : {"fast", "ordered"}) {
    EXPECT_EQ(read({"--wire", "bf16", "--reduction", reduction}).reducer.wire, DType::bf16);
  }
}

TEST(TrainOptions, ReadThePrecision) {
  EXPECT_EQ(read({}).precision, DType::f32);
  EXPECT_EQ(read({"--precision", "bf16"}).precision, DType::bf16);
  const TrainOptions options = read({"--precision", "fp16", "--loss_scale.init", "8"});
  EXPECT_EQ(options.precision, DType::f16);
  EXPECT_EQ(options.loss_scale.init, 8.0);
  EXPECT_EQ(options.loss_scale.min, 0x1p-24);
  EXPECT_EQ(options.loss_scale.max, 0x1p24);
}

TEST(TrainOptions, NameTheKeysThatRanksMustShare) {
  const auto keys = keys_to_match(read_train_config({"--trace", "t"}));
  const auto has = [&](const std::string& name) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const auto& entry) { return entry.first == name; });
  };
  EXPECT_TRUE(has("seed"));
  EXPECT_TRUE(has("optim.lr"));
  EXPECT_FALSE(has("trace"));
}

}  // namespace
}  // namespace lockstep
