// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/core/error.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using testing_support::ScratchFolder;

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(MetricsLog, PrintsRealsSoThatEqualBitsAreEqualText) {
  const float loss = 1.0F / 3.0F;
  const std::string line = to_json_line({.attempt = 2, .step = 7, .tokens = 512, .loss = loss});
  EXPECT_NE(line.find("\"loss\":0.333333343,"), std::string::npos) << line;
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["loss"].get<float>(), loss);
  EXPECT_EQ(json["attempt"], 2);
  EXPECT_EQ(json["step"], 7);
  for (const char* field : {"tokens", "grad_norm", "lr", "step_seconds", "tokens_per_s",
                            "data_wait_s", "comm_exposed_s", "checkpoint_stall_s"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_FALSE(json.contains("eval_loss"));
}

TEST(MetricsLog, PrintsNullForWhatIsNotFinite) {
  const auto json = nlohmann::json::parse(to_json_line({.loss = std::nan(""), .eval_loss = 1.5}));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["eval_loss"], 1.5);
}

TEST(MetricsLog, EndsATornLineBeforeItGoesOn) {
  const ScratchFolder scratch;
  const auto path = scratch.write("metrics.jsonl", "{\"step\":1}\n{\"ste");
  { MetricsLog(path).append({.step = 2}); }
  { MetricsLog(path).append({.step = 3}); }
  const std::string text = content(path);
  EXPECT_TRUE(text.starts_with("{\"step\":1}\n{\"ste\n{\"attempt\":0,\"step\":2,")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(MetricsLog, SaysWhatItCannotOpenOrWrite) {
  EXPECT_THROW(MetricsLog("/does/not/exist/metrics.jsonl"), StorageError);
  MetricsLog full("/dev/full");
  EXPECT_THROW(full.append({.step = 1}), StorageError);
}

}  // namespace
}  // namespace lockstep
