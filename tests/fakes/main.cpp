// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/fakes/nccl_processes.h"

// The machine that the tests expect; also that of the processes that they start.
int main(int argc, char** argv) {
  setenv("LOCKSTEP_FAKE_GPUS", "4", 1);
  setenv("LOCKSTEP_FAKE_GPU_MEMORY", "67108864", 1);
  if (argc > 1 && std::strcmp(argv[1], "--rank") == 0) {
    return lockstep::fake::run_rank(argc - 2, argv + 2);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
