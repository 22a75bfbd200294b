// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "lockstep/collectives/process_group.h"
#include "lockstep/runtime/trainer.h"
#include "tools/command.h"

namespace lockstep::tools {
namespace {

void print_help() {
  std::puts(
      "usage: lockstep train [--config run.toml] [--key value …]\n"
      "       mpirun -n N lockstep train …\n"
      "       srun --mpi=pmix lockstep train …\n\n"
      "A key a.b_c is the flag --a.b_c or --a-b-c, the variable LOCKSTEP_A_B_C, or b_c in the\n"
      "table [a] of the TOML file; flags win over variables, variables over the file.\n");
  for (const ConfigKey& key : train_keys()) {
    std::printf("  --%-22s %s", key.name.c_str(), key.help.c_str());
    if (!key.choices.empty()) {
      for (std::size_t i = 0; i < key.choices.size(); ++i) {
        std::printf("%s%s", i == 0 ? " (" : " | ", key.choices[i].c_str());
      }
      std::printf(")");
    }
    std::printf("%s%s%s\n", key.default_value.empty() ? "" : " [", key.default_value.c_str(),
                key.default_value.empty() ? "" : "]");
  }
}

}  // namespace

int run_train(const Arguments& arguments) {
  const bool help = std::find(arguments.begin(), arguments.end(), "--help") != arguments.end();
  if (!help) train(arguments);
  if (launch_place().rank == 0) print_help();
  return 0;
}

}  // namespace lockstep::tools
