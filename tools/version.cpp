// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "lockstep/collectives/process_group.h"
#include "lockstep/core/device.h"
#include "tools/command.h"

namespace lockstep::tools {

int run_version(const Arguments&) {
  const std::string nccl = nccl_version();
  const std::string gpus = nccl.empty() ? "" : ", cuda (nccl " + nccl + ")";
  std::printf("lockstep %s\nbackends: cpu (shm, mpi)%s\ncompiler: %s\n%s\n", LOCKSTEP_VERSION,
              gpus.c_str(), __VERSION__, cuda_report().c_str());
  return 0;
}

}  // namespace lockstep::tools
