// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/metrics_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
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
  full.append({.step = 1});
  EXPECT_TRUE(full.is_behind());
  EXPECT_NE(full.fault().find("/dev/full"), std::string::npos) << full.fault();
  EXPECT_THROW(full.flush(), StorageError);
  EXPECT_THROW(
      {
        for (int step = 0; step < 100'000; ++step) full.append({.step = step});
      },
      StorageError);
}

TEST(MetricsLog, KeepsLinesUntilTheyCanBeWritten) {
  const ScratchFolder scratch;
  const auto path = scratch.write("metrics.jsonl", "");
  struct rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  MetricsLog log(path);
  log.append({.step = 1});
  const std::string first = content(path);
  struct rlimit tight = before;
  tight.rlim_cur = first.size() + 20;  // the next line is cut within
  setrlimit(RLIMIT_FSIZE, &tight);
  log.append({.step = 2});
  log.append({.step = 3});
  const bool was_behind = log.is_behind();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(was_behind);
  log.append({.step = 4});
  EXPECT_FALSE(log.is_behind());
  std::string expected;
  for (const int step : {1, 2, 3, 4}) expected += to_json_line({.step = step});
  EXPECT_EQ(content(path), expected);
}

}  // namespace
}  // namespace lockstep
