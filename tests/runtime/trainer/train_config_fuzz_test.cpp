// SPDX-License-Identifier: Apache-2.0
// Files and flags that nobody would write: each is read or refused with a ConfigError, none
// crashes.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/runtime/train_options.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

constexpr const char* kFile = R"(
# A run.
steps = 40
seed = 9223372036854775807
run = "runs/fuzz"
reduction = "invariant"
[model]
preset = "none"
layers = 2
hidden = 64
heads = 4
[data]
source = "text:/usr/include"
[batch]
global = 16
micro = 4
[optim]
lr = 3e-4
clip = 1.0
nesterov = false
no_decay = "*.bias,*.ln_?.weight"
[timeout]
collective = 30
)";

// One to three changes: another byte, a piece moved, a piece lost.
std::string mutated(const std::string& original, std::mt19937& random) {
  std::string text = original;
  const auto changes = 1 + random() % 3;
  for (std::size_t change = 0; change < changes && !text.empty(); ++change) {
    const std::size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text[at] =
            random() % 8 == 0 ? static_cast<char>(random()) : original[random() % original.size()];
        break;
      case 1:
        text.insert(at, original.substr(random() % original.size(), random() % 30));
        break;
      default:
        text.erase(at, random() % 10);
    }
  }
  return text;
}

struct Counts {
  int read = 0;
  int refused = 0;
};

Counts try_all(int times, const std::function<std::vector<std::string>()>& arguments) {
  Counts counts;
  for (int i = 0; i < times; ++i) {
    try {
      train_options(read_train_config(arguments()));
      ++counts.read;
    } catch (const ConfigError& error) {
      EXPECT_STRNE(error.what(), "");
      EXPECT_NE(error.hint(), "");
      ++counts.refused;
    }
  }
  return counts;
}

TEST(TrainConfigFuzz, AFileIsReadOrRefusedWithAHint) {
  const testing_support::ScratchFolder folder;
  const std::string whole = folder.write("whole.toml", kFile).string();
  EXPECT_NO_THROW(train_options(read_train_config({"--config", whole})));
  std::mt19937 random(11);
  const Counts counts = try_all(200, [&] {
    const auto file = folder.write("run.toml", mutated(kFile, random));
    return std::vector<std::string>{"--config", file.string()};
  });
  EXPECT_GT(counts.read, 5);
  EXPECT_GT(counts.refused, 100);
}

TEST(TrainConfigFuzz, FlagsAreReadOrRefusedWithAHint) {
  const std::vector<std::string> original = {"--steps",
                                             "40",
                                             "--batch.global",
                                             "16",
                                             "--batch-micro",
                                             "4",
                                             "--optim.lr=3e-4",
                                             "--seed",
                                             "7",
                                             "--data.source",
                                             "text:/usr/include"};
  std::mt19937 random(12);
  const Counts counts = try_all(500, [&] {
    std::vector<std::string> words = original;
    std::string& word = words[random() % words.size()];
    word = mutated(word, random);
    if (random() % 4 == 0) words.erase(words.begin() + static_cast<long>(random() % words.size()));
    return words;
  });
  EXPECT_GT(counts.read, 50);
  EXPECT_GT(counts.refused, 100);
}

}  // namespace
}  // namespace lockstep
