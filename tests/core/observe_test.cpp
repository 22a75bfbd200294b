// SPDX-License-Identifier: Apache-2.0
// Metrics, trace and ledger.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/ledger.h"
#include "lockstep/core/metrics.h"
#include "lockstep/core/trace.h"

namespace lockstep {
namespace {

class Scratch : public testing::Test {
 protected:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("lockstep_observe_" + std::to_string(::getpid()));
  void TearDown() override { std::filesystem::remove(path_); }
};
using LedgerFile = Scratch;
using TraceFile = Scratch;

TEST(Metrics, PrintsThePrometheusTextFormat) {
  Metrics metrics;
  metrics.counter("lockstep_b_total", "bytes \\ and\nlines").add(1.5);
  metrics.counter("lockstep_b_total", "").add(2);
  metrics.gauge("lockstep_a", "a gauge").set(std::numeric_limits<double>::infinity());
  EXPECT_EQ(metrics.text(),
            "# HELP lockstep_a a gauge\n# TYPE lockstep_a gauge\nlockstep_a +Inf\n"
            "# HELP lockstep_b_total bytes \\\\ and\\nlines\n# TYPE lockstep_b_total counter\n"
            "lockstep_b_total 3.5\n");
  EXPECT_THROW(metrics.gauge("lockstep_b_total", ""), UsageError);
}

TEST_F(LedgerFile, KeepsTheLastRecordsInOrderAfterItWrapped) {
  {
    LedgerRing ring(path_.string(), 1, 2, 3, 4);
    for (std::uint64_t i = 1; i <= 6; ++i) {
      const std::uint64_t number = ring.enqueue({.sequence = i, .count = 10 * i});
      if (i < 6) ring.started(number, 100);
      if (i < 5) ring.ended(number, 200);
    }
  }
  const auto [header, records] = LedgerRing::read(path_.string());
  EXPECT_EQ(header.rank, 1);
  EXPECT_EQ(header.world, 2);
  EXPECT_EQ(header.attempt, 3);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records.front().sequence, 3U);
  EXPECT_EQ(records.back().sequence, 6U);
  EXPECT_EQ(records.back().started_ns, 0);
  EXPECT_EQ(records[2].started_ns, 100);
  EXPECT_EQ(records[2].ended_ns, 0);
}

TEST_F(LedgerFile, RefusesAnotherFileAndAFolderThatIsNotThere) {
  std::ofstream(path_) << "no ledger";
  EXPECT_THROW(LedgerRing::read(path_.string()), DataError);
  EXPECT_THROW(LedgerRing("/does/not/exist/ledger", 0, 1, 1), StorageError);
}

TEST_F(TraceFile, IsJsonWithOneNamedLaneAThread) {
  Trace trace(2);
  trace.add("forward", "compute", 1000, 3000);
  { const TraceSpan span(&trace, "bucket 0", "comm"); }
  { const TraceSpan none(nullptr, "nothing", "comm"); }
  trace.write(path_.string());
  const auto json = nlohmann::json::parse(std::ifstream(path_));
  ASSERT_EQ(json["traceEvents"].size(), 4U);
  EXPECT_EQ(json["traceEvents"][0]["args"]["name"], "compute");
  EXPECT_EQ(json["traceEvents"][1]["dur"], 2.0);
  EXPECT_EQ(json["traceEvents"][1]["pid"], 2);
}

}  // namespace
}  // namespace lockstep
