// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "lockstep/core/device.h"
#include "tools/command.h"

namespace lockstep::tools {

int run_version(const Arguments&) {
  std::printf("lockstep %s\nbackends: cpu (shm, mpi)\ncompiler: %s\n%s\n", LOCKSTEP_VERSION,
              __VERSION__, cuda_report().c_str());
  return 0;
}

}  // namespace lockstep::tools
