// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <exception>
#include <string>

#include "lockstep/core/config.h"
#include "lockstep/core/error.h"
#include "tools/command.h"

namespace {

struct Command {
  const char* name;
  const char* help;
  int (*run)(const lockstep::tools::Arguments&);
};

constexpr std::array<Command, 5> kCommands = {{
    {"train", "train a model; alone, or under mpirun or srun", lockstep::tools::run_train},
    {"sample", "let the model of a run continue a text", lockstep::tools::run_sample},
    {"ckpt", "ls | show | verify | export | gc | probe the checkpoints of a run",
     lockstep::tools::run_ckpt},
    {"bench", "allreduce | checkpoint | gemm | overlap | step: speed, with checked results",
     lockstep::tools::run_bench},
    {"version", "print the version and what is built in", lockstep::tools::run_version},
}};

void print_usage(std::FILE* to) {
  std::fputs("usage: lockstep COMMAND …\n\n", to);
  for (const Command& command : kCommands) {
    std::fprintf(to, "  %-10s %s\n", command.name, command.help);
  }
  std::fputs("\n`lockstep COMMAND --help` says more.\n", to);
}

}  // namespace

int main(int argc, char** argv) try {
  const lockstep::tools::Arguments words(argv + 1, argv + argc);
  if (words.empty()) {
    print_usage(stderr);
    return static_cast<int>(lockstep::Outcome::config);
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_usage(stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
    names.emplace_back(command.name);
  }
  const auto near = lockstep::nearest(words[0], names);
  throw lockstep::ConfigError(
      "command \"" + words[0] + "\" is unknown",
      near ? "did you mean " + *near + "?" : "`lockstep --help` lists them");
} catch (const std::exception& error) {
  std::fprintf(stderr, "lockstep: %s\n", lockstep::describe(error).c_str());
  return static_cast<int>(lockstep::outcome_of(error));
}
