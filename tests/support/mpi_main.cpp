// SPDX-License-Identifier: Apache-2.0
// The main of tests that run as ranks of a job:
//   mpirun-local -n N TEST [--backend=shm|mpi|nccl] [--device=cpu|cuda|cuda:N] …
// cuda is the GPU of the rank's number on its host.
#include "support/mpi_main.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/agree.h"

namespace lockstep::testing_support {
namespace {

constexpr std::string_view kBackend = "--backend=";
constexpr std::string_view kDevice = "--device=";

struct Asked {
  std::string backend = "auto";
  Device device = {};
  bool of_rank = false;
};
Asked& asked() {
  static Asked words;
  return words;
}

std::optional<ProcessGroup>& slot() {
  static std::optional<ProcessGroup> group;
  return group;
}

// A test fails on every rank as soon as it fails on one, so that all walk on together.
class AgreeOnFailure : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& info) override {
    const bool mine = info.result()->Failed();
    if (any(job().world(), mine) && !mine) ADD_FAILURE() << "failed on another rank";
  }
};

// What the printers of other ranks would say, cut down to failures.
class PrintFailures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", job().rank(),
                 result.file_name() ? result.file_name() : "?", result.line_number(),
                 result.message());
  }
};

int run(int argc, char** argv) {
  GroupOptions options;
  options.collective_timeout = std::chrono::seconds(30);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value_of = [&](std::string_view flag) {
      const bool is_flag = argument.substr(0, flag.size()) == flag;
      return std::string(is_flag ? argument.substr(flag.size()) : std::string_view());
    };
    if (const auto backend = value_of(kBackend); !backend.empty()) asked().backend = backend;
    if (const auto on = value_of(kDevice); !on.empty()) {
      asked().device = parse_device(on);
      asked().of_rank = on == "cuda";
    }
  }
  options.backend = asked().backend;
  slot() = ProcessGroup::init(options);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (job().rank() != 0) {
    const std::unique_ptr<::testing::TestEventListener> printer(
        listeners.Release(listeners.default_result_printer()));
    listeners.Append(new PrintFailures);  // gtest owns it
  }
  listeners.Append(new AgreeOnFailure);  // gtest owns it; ends of tests come in reverse order
  const int failed = RUN_ALL_TESTS();
  return static_cast<int>(job().leave(failed == 0 ? Outcome::finished : Outcome::internal));
}

}  // namespace

ProcessGroup& job() { return slot().value(); }

Device device() {
  Device device = asked().device;
  if (asked().of_rank) device.index = job().local_rank();
  return device;
}

const std::string& backend() { return asked().backend; }

bool same_on_all_ranks(const std::string& text) {
  const auto all = gather_text(job().world(), text);
  return std::all_of(all.begin(), all.end(), [&](const std::string& each) { return each == text; });
}

}  // namespace lockstep::testing_support

// What std::_Exit leaves out; there in builds for coverage.
extern "C" void __gcov_dump() __attribute__((weak));

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const int code = lockstep::testing_support::run(argc, argv);
    std::fflush(nullptr);
    if (__gcov_dump != nullptr) __gcov_dump();
    // After a failure MPI is not finalised and must not be torn down by exit handlers.
    std::_Exit(code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    if (auto& group = lockstep::testing_support::slot()) {
      group->abort({.outcome = lockstep::outcome_of(error),
                    .kind = "exception",
                    .origin_rank = group->rank(),
                    .what = error.what(),
                    .hint = {}});
      group->leave(lockstep::outcome_of(error));
    }
    std::_Exit(static_cast<int>(lockstep::outcome_of(error)));
  }
}
