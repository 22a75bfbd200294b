// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "tools/command.h"

namespace lockstep::tools {

int run_version(const Arguments&) {
  std::printf("lockstep %s\nbackends: cpu (shm, mpi)\ncompiler: %s\n", LOCKSTEP_VERSION,
              __VERSION__);
  return 0;
}

}  // namespace lockstep::tools
